from __future__ import annotations

import json

from bridge.executor.command.plan import command_environment
from bridge.executor.trial import make_directory
from bridge.records.jobspec import EnvironmentVariable
from tests.fakes.local_jobs import RUN_ID, Jobs


def environment(tmp_path, *pairs: tuple[str, str]) -> dict[str, str]:
    variables = [EnvironmentVariable(name=name, value=value, origin="policy") for name, value in pairs]
    spec = Jobs(executor=None, base=None).spec("pass", environment=variables)
    return command_environment(spec, spec.commands[0], make_directory(tmp_path / "run"), "marker", 7)


def test_nothing_of_our_own_environment_gets_in(tmp_path, monkeypatch):
    monkeypatch.setenv("SSH_AUTH_SOCK", "/agent")
    monkeypatch.setenv("BASH_ENV", "/evil")

    assert set(environment(tmp_path)) == {
        "HOME",
        "KAKEYA_MARKER",
        "KAKEYA_OUT",
        "KAKEYA_PARAMS",
        "KAKEYA_PRESET",
        "KAKEYA_PROFILE",
        "KAKEYA_REQUEST_DIGEST",
        "KAKEYA_RUN_ID",
        "KAKEYA_SAMPLE_PIPE",
        "LANG",
        "PATH",
        "PWD",
        "TMPDIR",
    }


def test_the_facts_of_the_run_cannot_be_overridden(tmp_path):
    variables = environment(
        tmp_path, ("HOME", "/root"), ("KAKEYA_OUT", "/etc"), ("KAKEYA_RUN_ID", "x"), ("PATH", "/opt/bin")
    )

    assert variables["HOME"] == str(tmp_path / "run" / "home")
    assert variables["KAKEYA_OUT"] == str(tmp_path / "run" / "out")
    assert variables["KAKEYA_RUN_ID"] == RUN_ID
    assert variables["PATH"] == "/opt/bin"
    assert json.loads(variables["KAKEYA_PARAMS"]) == {"k": 4}
