import pytest

from bridge.records.jobspec import EnvironmentVariable
from bridge.records.places import PlaceNames
from tests.unit.bridge.publish.records import RECORD, SPEC

PLACES = PlaceNames(
    {
        "RUN": ["/home/ada/state/runs/01", "/mnt/disk/runs/01"],
        "STATE": ["/home/ada/state"],
        "ENV": ["/home/ada/code/.venv"],
        "SOURCE": ["/home/ada/code"],
        "HOME": ["/home/ada"],
    }
)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("/home/ada/state/runs/01/files/work", "${RUN}/files/work"),
        ("left /mnt/disk/runs/01/files/out/x.json behind", "left ${RUN}/files/out/x.json behind"),
        ("/home/ada/state/runs/012", "${STATE}/runs/012"),
        ("/home/ada/code/.venv/bin/python", "${ENV}/bin/python"),
        ("/home/ada/code/.venvs/bin/python", "${SOURCE}/.venvs/bin/python"),
        ("/home/ada/code: not a folder", "${SOURCE}: not a folder"),
        ("HOME=/home/ada", "HOME=${HOME}"),
        ("'/home/ada/code.'", "'${SOURCE}.'"),
        ("/home/adam/code", "/home/adam/code"),
        ("/srv/home/ada/code", "/srv/home/ada/code"),
        ("/home/ada-2", "/home/ada-2"),
        ("nothing of it", "nothing of it"),
    ],
)
def test_a_folder_is_said_by_the_name_of_the_longest_place_that_holds_it(text, named):
    assert PLACES.name(text) == named


@pytest.mark.parametrize("folder", ["/", "relative/folder", ""])
def test_a_root_or_relative_folder_names_nothing(folder):
    assert PlaceNames({"HOME": [folder]}).name("/usr/bin/env relative/folder") == "/usr/bin/env relative/folder"


def test_texts_of_a_record_name_places_and_copies_of_the_request_stay():
    params = '{"note":"/home/ada/code"}'
    job = SPEC.evolve(
        params={"note": "/home/ada/code"},
        environment=(
            EnvironmentVariable(name="KAKEYA_PARAMS", value=params, origin="runner"),
            EnvironmentVariable(name="KAKEYA_TARGET", value="/home/ada/models/m", origin="policy"),
        ),
        sandbox=SPEC.sandbox.evolve(read_only=("/home/ada/models",)),
    )
    named = PLACES.name_in(job)
    assert named.params == job.params
    assert [variable.value for variable in named.environment] == [params, "${HOME}/models/m"]
    assert named.sandbox.read_only == ("${HOME}/models",)
    record = RECORD.evolve(
        environment=(("KAKEYA_PARAMS", params), ("A", "/home/ada")), message="no /mnt/disk/runs/01/x"
    )
    named_record = PLACES.name_in(record)
    assert named_record.environment == (("KAKEYA_PARAMS", params), ("A", "${HOME}"))
    assert named_record.message == "no ${RUN}/x"
