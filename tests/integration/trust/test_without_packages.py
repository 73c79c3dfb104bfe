"""Without the packages that sign and check, everything else works, and nothing looks signed that is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bridge.errors import install_remedy
from bridge.trust.attestation import ATTESTATION_FILE
from bridge.trust.keyring import pin
from tests.support.runner_site import Site

ROOT = Path(__file__).parents[3]
ABSENT = "import sys; sys.modules['securesystemslib'] = sys.modules['cryptography'] = None; "


def without(program: str, *words: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run one of the commands in a process that cannot import the packages."""
    code = f"{ABSENT}from bridge.cli.{program}.main import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=cwd, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), **environment},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.fixture
def place(tmp_path) -> Site:
    tmp_path.chmod(0o700)
    return Site(tmp_path)


def home(folder: Path) -> dict[str, str]:
    return {"KAKEYA_DATA_DIR": str(folder / "data"), "KAKEYA_CONFIG_DIR": str(folder / "config")}


def test_a_bus_made_without_them_is_unsigned_and_its_results_say_so(place) -> None:
    made = without("host", *place.command("once", "--bus", place.route, "--create-bus")[3:])
    assert (made.returncode, "unsigned" in made.stderr, install_remedy("trust") in made.stderr) == (0, True, True)
    ref = place.ask()
    without("host", *place.command("once", "--bus", place.route)[3:])
    claim = place.ended(ref)
    assert ATTESTATION_FILE not in place.requester().read_result(claim.result_oid).files
    checked = without("mac", "verify", ref.id, "--bus", place.route, cwd=place.folder, **home(place.folder))
    assert checked.returncode == 9, checked.stderr
    assert "unsigned bus: " in checked.stdout


def test_a_bus_that_signs_is_not_served_without_them_and_a_pinned_key_is_no_key_without_them(place) -> None:
    assert place.run("keygen").code == 0
    place.run("once", "--bus", place.route, "--create-bus")
    ref = place.ask()
    refused = without("host", *place.command("once", "--bus", place.route)[3:])
    assert refused.returncode == 2
    assert "this bus signs its results and this runner has not the packages to sign with" in refused.stderr
    place.run("once", "--bus", place.route)
    key = pin(place.requester().identity().keys[0])
    words = ("verify", ref.id, "--bus", place.route, "--runner-key", key)
    checked = without("mac", *words, cwd=place.folder, **home(place.folder))
    assert checked.returncode == 1
    assert "the packages to check it are not installed" in checked.stdout


def test_keygen_says_what_to_install(place) -> None:
    done = without("host", *place.command("keygen")[3:])
    assert done.returncode == 2
    assert install_remedy("trust") in done.stderr
