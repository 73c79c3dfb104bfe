"""An owner edits a program and its preset while a runner serves."""

from __future__ import annotations

import json

import pytest

from tests.support.workload_folder import edit, write, write_workload

PROGRAM = """import json, os, sys, time
from pathlib import Path
folder = Path({counted!r})
os.environ["KAKEYA_SEED"]
(folder / os.environ["KAKEYA_RUN_ID"]).touch()
while not (folder / "go").exists():
    time.sleep(0.05)
loss = {value} + int(sys.argv[sys.argv.index("--steps") + 1])
Path(os.environ["KAKEYA_OUT"], "weights.json").write_text("0")
Path(os.environ["KAKEYA_REPORT"]).write_text(json.dumps({{"metrics": {{"final_loss": loss}}}}))
"""


def numbers_and_code(s, ref):
    """Return the numbers of a run's repeats, and the code record of its result."""
    files = s.requester().read_result(s.ended(ref).result_oid).files
    reports = [json.loads(data) for name, data in sorted(files.items()) if name.endswith("report.json")]
    return [report["metrics"]["final_loss"] for report in reports], json.loads(files["run.json"])["code"]


@pytest.mark.ci
def test_the_next_run_is_of_what_the_owner_edited_and_one_that_went_on_says_that_its_programs_changed(site):
    s = site()
    s.create_bus()
    s.folder.chmod(0o755)  # a root runner's programs run as another user
    counted = s.folder / "counted"
    folder = write_workload(s.folder)
    edit(folder, ("repeats = 6", "repeats = 2"))
    write(folder / "train.py", PROGRAM.format(counted=str(counted), value=0.25))
    listing = s.folder / "workloads.list"
    listing.write_text(f"{folder}\n")
    listing.chmod(0o600)
    policy = s.policy()
    policy.write_text(policy.read_text().replace("[presets]", f'workloads = "{listing}"\n[presets]'))
    s.start("serve", "--bus", s.route)
    first = s.ask("my-train")
    s.until((counted / first.id).exists, "never began")
    edit(folder, ("default = 20", "default = 30"))
    write(folder / "train.py", PROGRAM.format(counted=str(counted), value=0.5))
    second = s.ask("my-train")
    (counted / "go").touch()
    numbers, code = numbers_and_code(s, first)
    assert (numbers, code["dirty"]) == ([20.25, 20.5], True)  # by the old preset, its second repeat of the new program
    numbers, newer = numbers_and_code(s, second)
    assert (numbers, newer["dirty"]) == ([30.5, 30.5], False)
    assert newer["identity"] != code["identity"]
