from __future__ import annotations

import re
import socket
from multiprocessing.synchronize import SemLock
from pathlib import Path

import pytest

from bridge.executor.interface import RunDirectory
from bridge.executor.local import LocalExecutor
from bridge.executor.sandbox import seatbelt
from bridge.executor.trial import make_directory
from bridge.records.jobspec import SandboxSpec
from bridge.records.workload import ProgramDigest, WorkloadDefinition
from bridge.system.clock import SystemClock
from tests.fakes.local_jobs import Jobs
from tests.support.seatbelt_kernel import Profile, Subject

GOLDEN = Path(__file__).with_name("golden") / "seatbelt.sb"
READABLE = ("/opt/venv", "/models/tiny")
WRITABLE = ("/private/tmp/run/work", "/private/tmp/run/out")


def test_the_profile_is_the_golden_one():
    assert seatbelt.profile(READABLE, WRITABLE, network=False) == GOLDEN.read_text()


def test_everything_is_denied_that_is_not_named():
    lines = seatbelt.profile(READABLE, WRITABLE, network=False).splitlines()

    assert lines[:2] == ["(version 1)", "(deny default)"]
    assert not any(re.fullmatch(r"\(allow file-(read|write)\*?\)", line) for line in lines)


def test_the_root_itself_can_be_read_as_the_dynamic_linker_does_and_nothing_below_it():
    lines = seatbelt.profile(READABLE, WRITABLE, network=False).splitlines()

    assert '(allow file-read* file-test-existence (literal "/"))' in lines
    assert not any('(subpath "/")' in line for line in lines)


@pytest.fixture
def store(tmp_path):
    """Lay out a folder of interpreters as package managers do: versions behind links, an environment before them."""
    root = tmp_path.resolve()
    (root / "store" / "cpython-3.12.13" / "bin").mkdir(parents=True)
    (root / "store" / "cpython-3.12.13" / "bin" / "tool").touch()
    (root / "store" / "cpython-3.12").symlink_to("cpython-3.12.13")
    (root / "env" / "bin").mkdir(parents=True)
    (root / "env" / "bin" / "tool").symlink_to("../../store/cpython-3.12/bin/tool")
    (root / "current").symlink_to(root / "env")
    return root


def crossed(root, path):
    return [str(Path(node).relative_to(root)) for node in seatbelt.link_nodes(str(root / path))]


def test_every_link_on_the_way_counts_relative_chained_and_in_the_middle(store):
    assert crossed(store, "current/bin/tool") == ["current", "env/bin/tool", "store/cpython-3.12"]
    assert crossed(store, "store/cpython-3.12/../cpython-3.12/bin") == ["store/cpython-3.12", "store/cpython-3.12"]
    assert crossed(store, "store/cpython-3.12.13/bin/tool") == []


def test_a_circle_of_links_and_a_path_that_is_not_there_end(store):
    (store / "east").symlink_to("west")
    (store / "west").symlink_to("east")
    (store / "gone").symlink_to("nowhere/at/all")

    assert set(crossed(store, "east/bin")) == {"east", "west"}
    assert crossed(store, "gone/bin") == ["gone"]


def metadata(text):
    (rule,) = [rule for rule in text.split("\n(") if rule.startswith("allow file-read-metadata")]
    return re.findall(r'\(literal "([^"]+)"\)', rule)


def test_each_link_to_a_program_and_the_folders_above_it_may_be_looked_up(store):
    directory = make_directory(store / "run")
    spec = Jobs(LocalExecutor(SystemClock()), store).spec(argv=[(str(store / "current" / "bin" / "tool"),)])

    text = seatbelt.profile_of(spec, directory)

    links = [str(store / name) for name in ("current", "env/bin/tool", "store/cpython-3.12")]
    folders = [str(store / name) for name in ("", "env", "env/bin", "store")]
    assert {*links, *folders} <= set(metadata(text))
    assert f'(subpath "{store}/store/cpython-3.12.13/bin/tool")' in text
    assert not any(f'(subpath "{link}")' in text for link in links)


def test_an_owners_program_as_it_is_sees_the_systems_programs_as_it_does_on_linux(tmp_path):
    directory = make_directory(tmp_path / "run")
    spec = Jobs(LocalExecutor(SystemClock()), tmp_path).spec("pass")
    reader = ProgramDigest(role="reader", path="/opt/kakeya/reader.py", sha256="0" * 64, files=1, bytes=1)
    own = WorkloadDefinition(name="my-script", digest="0" * 64, program="run.sh", metrics=(), programs=(reader,))

    assert '(subpath "/usr/bin")' not in seatbelt.profile_of(spec, directory)
    assert '(subpath "/usr/bin")' in seatbelt.profile_of(spec.evolve(workload=own), directory)


def test_a_link_in_the_place_of_a_runs_folder_opens_nothing_to_the_next_command(tmp_path):
    directory = make_directory(tmp_path / "run")
    owners = tmp_path / "owner"
    owners.mkdir()
    directory.home.rmdir()
    directory.home.symlink_to(owners)
    mac = Profile(seatbelt.profile_of(Jobs(LocalExecutor(SystemClock()), tmp_path).spec("pass"), directory))

    for operation in ("file-read-data", "file-write-data", "file-write-create"):
        assert not mac.permits(operation, Subject(path=str(owners / "letter.txt")))
        assert mac.permits(operation, Subject(path=str(directory.home / "letter.txt")))


def test_only_the_runs_folders_are_writable():
    text = seatbelt.profile(READABLE, WRITABLE, network=False)
    rules = [rule for rule in text.split("\n(") if "file-write*" in rule]
    written = {path for rule in rules for path in re.findall(r'"([^"]+)"', rule)}

    assert {path for path in written if not path.startswith("/dev/")} == set(WRITABLE)


def test_the_network_is_allowed_only_when_asked_for():
    assert "network" not in seatbelt.profile(READABLE, WRITABLE, network=False)
    assert "(allow network*)" in seatbelt.profile(READABLE, WRITABLE, network="host")


@pytest.mark.enable_socket  # the proxy listens on loopback
def test_a_network_by_names_opens_the_port_of_its_proxy_alone(tmp_path):
    directory = make_directory(tmp_path / "run")
    jobs = Jobs(LocalExecutor(SystemClock()), tmp_path)
    spec = jobs.spec("pass", sandbox=SandboxSpec(mode="required", network=("data.example.org",)))

    with seatbelt.Seatbelt(spec, directory, uid=501).command(("/opt/venv/bin/python",), {"A": "1"}) as wrapped:
        port = int(wrapped.environment["https_proxy"].rpartition(":")[2])
        mac = Profile((directory.root / "profile.sb").read_text())
        with socket.create_connection(("127.0.0.1", port), 5) as client:
            client.sendall(b"CONNECT other.example.org:443 HTTP/1.1\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 403")
    assert mac.permits("network-outbound", Subject(name=f"localhost:{port}"))
    assert not mac.permits("network-outbound", Subject(name="localhost:22"))
    assert not mac.permits("network-bind")


def test_metal_is_reachable():
    text = seatbelt.profile(READABLE, WRITABLE, network=False)

    assert '(global-name "com.apple.MTLCompilerService")' in text
    assert '(iokit-user-client-class "AGXDeviceUserClient")' in text


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("/psm_3f2a9c1d", True),
        ("/mp-k2x9w_ab", True),
        ("/__KMP_REGISTERED_LIB_4711", True),
        ("/__KMP_REGISTERED_LIB_4711/other", False),
        ("/other/mp-k2x9w_ab", False),
        ("apple.shm.notification_center", False),
    ],
)
def test_only_the_names_of_pythons_and_openmps_shared_memory_are_open(name, allowed):
    text = seatbelt.profile(READABLE, WRITABLE, network=False)
    (rule,) = [rule for rule in text.split("\n(") if rule.startswith("allow ipc-posix-shm* ipc-posix-sem*")]
    patterns = re.findall(r'\(ipc-posix-name-regex #"([^"]+)"\)', rule)

    assert any(re.search(pattern, name) for pattern in patterns) is allowed


def test_a_lock_of_multiprocessing_has_a_name_that_is_open():
    text = seatbelt.profile(READABLE, WRITABLE, network=False)
    name = SemLock._make_name()

    assert any(re.search(pattern, name) for pattern in re.findall(r'ipc-posix-name-regex #"([^"]+)"', text))


@pytest.mark.parametrize("name", ['a"b', "a\\b", 'x")) (allow default) ((subpath "'])
def test_a_path_cannot_end_its_own_quotes(name):
    quoted = seatbelt.quoted(name)

    assert re.fullmatch(r'"(?:[^"\\]|\\.)*"', quoted)


def test_the_command_runs_under_a_profile_file_that_the_run_cannot_write(tmp_path):
    directory = RunDirectory(tmp_path, *(tmp_path / name for name in ("work", "out", "home", "tmp")))
    for folder in (directory.work, directory.out, directory.home, directory.tmp):
        folder.mkdir()
    box = seatbelt.Seatbelt(Jobs(LocalExecutor(SystemClock()), tmp_path).spec("pass"), directory, uid=501)

    with box.command(("/opt/venv/bin/python", "x.py"), {"A": "1"}) as wrapped:
        assert wrapped.argv == (seatbelt.PROGRAM, "-f", str(tmp_path / "profile.sb"), "/opt/venv/bin/python", "x.py")
        assert (tmp_path / "profile.sb").read_text() == seatbelt.profile_of(box.spec, directory)
        assert wrapped.environment == {"A": "1"}
    assert not (tmp_path / "profile.sb").exists()
    assert box.applied.kind == "seatbelt"
    assert "experimental" in box.applied.filters


def test_what_is_masked_is_denied_after_its_folder_is_allowed():
    text = seatbelt.profile(READABLE, WRITABLE, network="host", masked=["/models/tiny/.netrc"])

    denied = '(deny file-read* file-test-existence file-write* network-outbound\n  (subpath "/models/tiny/.netrc"))'
    assert text.endswith(denied + "\n")
    assert text.index(denied) > max(text.index('(subpath "/models/tiny")'), text.index("(allow network*)"))
