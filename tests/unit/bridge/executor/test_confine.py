from __future__ import annotations

import os

import pytest

from bridge.errors import SandboxUnavailableError
from bridge.executor.sandbox import allowlist
from bridge.executor.sandbox.bubblewrap import stage_for
from bridge.executor.sandbox.choice import confine
from bridge.executor.sandbox.confinement import nothing
from bridge.executor.sandbox.user import JOB_UID, check_readable, closed_to, drop_to, job_uid
from bridge.executor.trial import make_directory
from bridge.records.jobspec import SandboxSpec
from tests.fakes.local_jobs import Jobs


def spec(mode: str, **fields):
    return Jobs(executor=None, base=None).spec("pass", sandbox=SandboxSpec(mode=mode, **fields))


def test_a_required_sandbox_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(SandboxUnavailableError, match="bubblewrap is not installed"):
        confine(spec("required"), make_directory(tmp_path / "run"), nothing("bubblewrap is not installed"))


@pytest.mark.parametrize("network", [("data.example.org",), "internet"])
def test_a_run_by_names_does_not_start_where_nothing_holds_it_to_them(tmp_path, network):
    own = spec("preferred", network=network).evolve(labels=("embedded",))
    with pytest.raises(SandboxUnavailableError, match="which only a sandbox holds it to, and the host has none: off"):
        confine(own, make_directory(tmp_path / "run"), nothing("off"))


def test_a_preferred_sandbox_that_is_not_there_is_done_without_and_said(tmp_path):
    own = spec("preferred").evolve(labels=("embedded",))
    confinement = confine(own, make_directory(tmp_path / "run"), nothing("user namespaces are off"))

    assert (confinement.applied.kind, confinement.applied.reason) == ("none", "user namespaces are off")
    assert confinement.applied.network


def test_a_run_without_a_sandbox_is_another_user_than_the_runner_or_does_not_start(tmp_path):
    job_spec, none = spec("preferred", uid=os.getuid() or None), nothing("namespaces are denied")
    if os.getuid() == 0:
        assert confine(job_spec, make_directory(tmp_path / "run"), none).applied.uid == JOB_UID
        return
    with pytest.raises(SandboxUnavailableError, match=r"namespaces are denied.*could read the runner's key"):
        confine(job_spec, make_directory(tmp_path / "run"), none)
    own = job_spec.evolve(labels=("embedded",))
    assert confine(own, make_directory(tmp_path / "own"), none).applied.uid == os.getuid()


def test_a_sandbox_that_is_off_is_said_too(tmp_path):
    confinement = confine(spec("off"), make_directory(tmp_path / "run"), nothing("never tried"))
    with confinement.command(("/bin/true",), {"A": "1"}) as wrapped:
        expected = (*drop_to(job_uid(None)), "/bin/true")
        assert (wrapped.argv, wrapped.environment, wrapped.wrappers) == (expected, {"A": "1"}, 0)

    assert confinement.applied.reason == "the job spec asks for none"
    unsandboxed = confine(
        spec("off").evolve(labels=("unsandboxed",)), make_directory(tmp_path / "own"), nothing("never tried")
    )
    assert unsandboxed.applied.reason == "asked for with --unsandboxed"


def test_our_own_user_needs_no_change():
    assert drop_to(os.getuid()) == ()


def test_a_run_is_never_root(tmp_path):
    assert job_uid(None) == (JOB_UID if os.getuid() == 0 else os.getuid())
    assert job_uid(54321) == 54321
    with pytest.raises(SandboxUnavailableError, match="never root"):
        confine(spec("off", uid=0), make_directory(tmp_path / "run"), nothing("never tried"))


def test_a_program_its_user_may_not_read_is_an_error_with_a_remedy(tmp_path):
    program = tmp_path / "tool"
    program.write_bytes(b"\x7fELF")
    program.chmod(0o700)
    job_spec = Jobs(executor=None, base=None).spec(argv=[(str(program),)])

    with pytest.raises(SandboxUnavailableError, match=f"user 54321, which may not read {program}") as refusal:
        check_readable(54321, job_spec)
    assert f"chmod -R o+rX {program}" in str(refusal.value)
    program.chmod(0o755)
    check_readable(54321, job_spec)


@pytest.mark.skipif(os.getuid() == 0, reason="root may become anybody")
def test_becoming_another_user_needs_root():
    with pytest.raises(SandboxUnavailableError, match="the run must be user 54321"):
        drop_to(54321)


def test_a_folder_that_keeps_a_user_out_is_named(tmp_path):
    shut = tmp_path / "shut"
    (shut / "inner").mkdir(parents=True)
    shut.chmod(0o700)

    path = str(shut / "inner" / "x")

    assert closed_to(54321, [path])[path] in {str(folder) for folder in (shut, *shut.parents)}
    assert closed_to(os.getuid(), [path]) == {}
    assert closed_to(54321, ["/usr/lib/x"]) == {}


def test_a_project_folder_gives_its_packages_and_nothing_else(tmp_path):
    for name in (".git", "package", "notes", ".venv"):
        (tmp_path / name).mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "module.py").touch()
    (tmp_path / "secrets.toml").touch()

    assert allowlist._packages_in(tmp_path) == [str(tmp_path / "module.py"), str(tmp_path / "package")]
    assert allowlist._is_project(str(tmp_path))
    assert not allowlist._is_project("/opt/venv/lib/python3.11/site-packages")


def test_paths_below_another_are_left_out():
    assert allowlist._outermost(["/a/b", "/a", "/ab", "/a/b/c"]) == ("/a", "/ab")


def test_a_script_brings_its_interpreter(tmp_path):
    interpreter, script = tmp_path / "tool", tmp_path / "script"
    interpreter.write_bytes(b"\x7fELF")
    script.write_text(f"#!{interpreter}\n")

    declared = allowlist.allow_list([str(script)], []).declared

    assert set(declared) == {str(script), str(interpreter)}


def test_a_declared_path_that_is_missing_is_an_error():
    with pytest.raises(SandboxUnavailableError, match="does not exist"):
        allowlist.allow_list([], ["/no/such/model"])


def test_name_resolution_is_readable_only_with_a_network():
    without = allowlist.allow_list([], []).system
    given = allowlist.allow_list([], [], network="host").system

    assert not any(path.startswith("/etc/resolv") for path in without)
    assert set(without) <= set(given)
    assert "/" not in given
    assert not any(path in ("/usr", "/etc", "/home", "/root", "/var", "/run") for path in given)


def test_the_systems_programs_are_there_only_for_code_that_needs_them():
    without = allowlist.allow_list(["/usr/bin/env"], [])
    given = allowlist.allow_list(["/usr/bin/env"], [], tools=True)

    assert "/usr/bin" not in without.system
    assert without.declared == ("/usr/bin/env",)
    assert "/usr/bin" in given.system
    assert given.declared == ()


def test_the_stage_never_covers_what_is_to_be_staged(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    places = (str(tmp_path / "missing"), str(first), str(second))

    assert stage_for(["/a", f"{first}/model"], places) == {"/a": f"{second}/0", f"{first}/model": f"{second}/1"}
    with pytest.raises(SandboxUnavailableError, match="another user needs one of"):
        stage_for([f"{first}/model", f"{second}/model"], places)
