"""What a run is given inside the sandbox: network, folders, devices, variables and room, as declared and no more."""

from __future__ import annotations

import socket
import sys
import threading

import pytest

from bridge.errors import SandboxUnavailableError
from bridge.records.jobspec import EnvironmentVariable, SandboxSpec
from bridge.system.process import run
from tests.fakes.local_jobs import living
from tests.integration.executor.inside import TRY, refused, told

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these are about a Linux sandbox")


def test_a_loopback_of_its_own_works_inside(caged, token):
    execution = caged.run(
        f"""{TRY}
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    tell(own=attempt(socket.create_connection, server.getsockname()) != "refused")  # {token}
"""
    )

    assert told(execution) == {"own": True}


def test_the_name_that_the_machine_has_inside_leads_to_that_loopback(caged, token):
    execution = caged.run(f"{TRY}\nimport socket\ntell(own=socket.gethostbyname(socket.gethostname()))  # {token}")

    assert told(execution) == {"own": "127.0.0.1"}


def test_a_socket_has_room_for_its_name_below_tmpdir_wherever_the_run_is_kept(caged, token, tmp_path):
    caged.base = tmp_path / ("long" * 25)
    caged.base.mkdir()
    program = f"""{TRY}
import socket
path = os.path.join(os.environ["TMPDIR"], "listener")
with socket.socket(socket.AF_UNIX) as server:
    tell(bound=attempt(server.bind, path))  # {token}
"""
    execution = caged.run(program)

    assert told(execution) == {"bound": "got through: None"}
    assert (caged.directory.tmp / "listener").is_socket()


def test_a_network_is_there_only_when_the_spec_says_so(caged, token, request):
    server = socket.create_server(("127.0.0.1", 0))
    request.addfinalizer(server.close)
    program = f"""{TRY}
import socket
tell(loopback=attempt(lambda: socket.create_connection(("127.0.0.1", {server.getsockname()[1]}), timeout=5).close()))
# {token}
"""
    execution = caged.run(program, sandbox=caged.sandbox(network="host"))

    assert told(execution) == {"loopback": "got through: None"}
    assert execution.sandbox.network
    assert "net" not in execution.sandbox.namespaces


def test_the_environment_is_the_specs_and_no_value_of_it_shows_in_the_process_list(caged, token):
    command_lines: list[str] = []
    variable = EnvironmentVariable(name="API_KEY", value=f"key-{token}", origin="policy", secret=True)
    program = f"{TRY}\nimport time\ntell(names=sorted(os.environ))\nsys.stdout.flush()\ntime.sleep(0.6)"

    def stop():
        if caged.heard:
            command_lines.extend(living(f"key-{token}"))
        return

    execution = caged.run(program, environment=[variable], stop=stop)

    assert told(execution)["names"] == [
        "API_KEY",
        "HOME",
        "KAKEYA_MARKER",
        "KAKEYA_NONCE",
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
    ]
    assert command_lines == []


def test_tmp_and_shared_memory_are_bounded(caged, token):
    execution = caged.run(
        f"""{TRY}
def fill(path):
    with open(path, "wb") as file:
        for _ in range(600):
            file.write(bytes(1 << 20))
tell(tmp=attempt(fill, "/tmp/x"), shm=attempt(fill, "/dev/shm/x"))  # {token}
""",
        output_bytes=2 << 30,
    )

    refused(execution, "tmp", "shm")


def test_host_packages_import_and_the_checkouts_git_folder_is_not_there(caged, token):
    if not run([sys.executable, "-I", "-c", "import bridge, engine, numpy"], timeout_s=60.0).ok:
        pytest.skip("this interpreter has the packages only through PYTHONPATH")
    program = f"""{TRY}
import bridge, engine, numpy
top = os.path.dirname(os.path.dirname(bridge.__file__))
tell(git=os.path.exists(top + "/.git"), tests=os.path.exists(top + "/tests"))  # {token}
"""
    execution = caged.run(argv=[(sys.executable, "-I", "-c", program)])

    assert told(execution) == {"git": False, "tests": False}


def test_a_declared_folder_can_be_read_and_not_written(caged, token, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    model.chmod(0o755)
    program = f"""{TRY}
model = {str(model)!r}
tell(read=open(model + "/config.json").read(), write=attempt(open, model + "/x", "w"))  # {token}
"""
    execution = caged.run(program, sandbox=caged.sandbox(read_only=(str(model),)))

    assert told(execution) == {"read": "{}", "write": "refused"}


def test_only_declared_devices_are_there(caged, token):
    program = f"{TRY}\ntell(names=sorted(os.listdir('/dev')))  # {token}"
    without = told(caged.run(program))["names"]
    given = told(caged.run(program, sandbox=caged.sandbox(devices=("/dev/kmsg",))))["names"]

    standard = ["core", "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty"]
    assert set(without) == {*standard, "urandom", "zero"}
    assert "kmsg" in given


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"read_only": ("/no/such/model",)}, "which does not exist"),
        ({"devices": ("/dev/no-such-device",)}, "no device of this host"),
        ({"devices": ("/etc/passwd",)}, "no device of this host"),
    ],
)
def test_what_cannot_be_given_is_an_error_before_anything_starts(caged, fields, words):
    with pytest.raises(SandboxUnavailableError, match=words):
        caged.run("print('never')", sandbox=caged.sandbox(**fields))

    assert caged.started == []


def test_a_sandbox_that_cannot_be_set_up_is_the_executors_failure_not_the_programs(caged):
    execution = caged.run(argv=[("/no/such/python", "-c", "pass")])

    assert (execution.ok, execution.ending, execution.program_exit) == (False, "not_started", None)


def test_a_preferred_sandbox_is_applied_and_said(caged, token):
    sandbox = SandboxSpec(mode="preferred", uid=caged.spec("pass").sandbox.uid)
    execution = caged.run(f"{TRY}\ntell(uid=os.getuid())  # {token}", sandbox=sandbox)

    assert execution.sandbox.kind == "bwrap"
    assert execution.sandbox.uid == told(execution)["uid"]
    assert {"user", "pid", "ipc", "net", "uts", "mount"} <= set(execution.sandbox.namespaces)
    assert any("seccomp" in text for text in execution.sandbox.filters)


def test_several_commands_share_the_runs_folders_and_stop_at_the_first_failure(jobs, token):
    execution = jobs.run(
        f"import os; open('note', 'w').write('from the first'); print('{token}')",
        "import sys; print(open('note').read()); sys.exit(3)",
        "print('never')",
    )

    assert [command.exit_code for command in execution.commands] == [0, 3]
    assert execution.program_exit == 3
    assert b"from the first" in execution.log
    assert b"never" not in execution.log


def test_runs_at_the_same_time_are_apart(caged, token):
    results: dict[str, dict[str, str]] = {}

    def go(name: str) -> None:
        answer = told(
            caged.run(
                f"{TRY}\nimport time; time.sleep(0.4)\ntell(pids=len([n for n in os.listdir('/proc') if n.isdigit()]))"
            )
        )
        results[name] = answer

    threads = [threading.Thread(target=go, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert results == {"a": {"pids": 2}, "b": {"pids": 2}}
