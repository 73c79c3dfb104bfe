"""runner-setup: real on Linux below a throw-away root with a stub service manager; macOS by its dry run."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.runner.policy import read_policy
from bridge.runner.setup_checks import RECEIPT, check

ROOT = Path(__file__).resolve().parents[3]
SETUP = ROOT / "runner-setup"
GOLDEN = Path(__file__).parent / "golden"
SERVICE_MANAGER = """#!/bin/sh
# A service manager with one unit: `enable --now` starts it, `disable --now` stops it.
state="$(dirname "$0")/service-state"
case "$1" in
  enable) echo on > "$state" ;;
  disable) rm -f "$state" ;;
  is-enabled|is-active) test -f "$state" ;;
esac
"""


class Host:
    """A machine below a folder, with the folders every Linux has."""

    def __init__(self, folder: Path, source: Path | None = None) -> None:
        self.source = source
        self.options: list[str] = []
        self.root = folder / "root"
        for name in ("opt", "etc/systemd/system", "etc/logrotate.d", "etc/sudoers.d", "var/lib", "var/log"):
            (self.root / name).mkdir(parents=True)
        self.manager = folder / "service-manager"
        self.manager.write_text(SERVICE_MANAGER)
        self.manager.chmod(0o755)

    def setup(self, *options: str, token: str = "") -> subprocess.CompletedProcess[str]:
        command = [
            *("bash", str(SETUP / "setup_gpu.sh"), "--root", str(self.root), "--service-manager", str(self.manager)),
            *("--bus", "https://example.org/owner/bus.git", "--name", "box", "--python", sys.executable),
            *(
                "--package",
                str(self.source or ROOT),
                "--extras",
                "",
                "--constraints",
                str(ROOT / "constraints.txt"),
                *options,
            ),
        ]
        return subprocess.run(command, input=token, capture_output=True, text=True, timeout=280, check=False)

    def files(self) -> dict[str, str]:
        return {
            str(path.relative_to(self.root)): hashlib.sha256(path.read_bytes()).hexdigest()
            if path.is_file()
            else "folder"
            for path in sorted(self.root.rglob("*"))
            if "opt/kakeya/" not in str(path)
        }


def copied_source(folder: Path) -> Path:
    """Copy what a package is built from: building writes beside the sources."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    for name in ("bridge", "engine"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.safetensors"))
    return folder


def fault_hides_the_receipt(host: Host) -> bool:
    return not (host.root / "etc/kakeya" / RECEIPT).exists()


def twin(host: Host, folder: Path) -> Host:
    """Copy an installed host; the packages, which no fault touches, are shared by a link."""
    copy = Host(folder, host.source)
    shutil.rmtree(copy.root)
    shutil.copytree(host.root, copy.root, symlinks=True, ignore=shutil.ignore_patterns("lib", "lib64"))
    for name in ("lib", "lib64"):
        (copy.root / "opt/kakeya" / name).symlink_to(host.root / "opt/kakeya" / name)
    shutil.copytree(host.root / "var/lib", copy.root / "var/lib")
    shutil.copy(host.manager.parent / "service-state", copy.manager.parent / "service-state")
    receipt = copy.root / "etc/kakeya" / RECEIPT
    moved = receipt.read_text().replace(str(host.root), str(copy.root))
    receipt.write_text(moved.replace(str(host.manager), str(copy.manager)))
    return copy


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> tuple[Host, dict[str, str], subprocess.CompletedProcess[str]]:
    host = Host(tmp_path_factory.mktemp("host"), copied_source(tmp_path_factory.mktemp("source")))
    before = host.files()
    done = host.setup()
    assert done.returncode == 0, done.stdout + done.stderr
    return host, before, done


class TestLinux:
    def test_a_dry_run_changes_nothing_and_names_what_the_real_run_does(self, installed, tmp_path) -> None:
        fresh = Host(tmp_path, installed[0].source)
        before = fresh.files()
        dry = fresh.setup("--dry-run")
        assert dry.returncode == 0, dry.stderr
        assert fresh.files() == before
        real = [line.split(maxsplit=1)[1] for line in installed[2].stdout.splitlines() if line.startswith("do ")]
        planned = [line.split(maxsplit=1)[1] for line in dry.stdout.splitlines() if line.startswith("would ")]
        assert [p.replace(str(fresh.root), "") for p in planned] == [
            r.replace(str(installed[0].root), "") for r in real
        ]

    def test_a_second_run_changes_nothing(self, installed) -> None:
        host, _, _ = installed
        before = host.files()
        again = host.setup()
        assert again.returncode == 0, again.stderr
        assert again.stdout.splitlines()[-1] == "0 change(s) made"
        assert host.files() == before

    def test_the_installed_runner_starts_from_its_own_environment(self, installed) -> None:
        host, _, _ = installed
        runner = host.root / "opt/kakeya/bin/kakeya-runner"
        done = subprocess.run([str(runner), "--help"], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert "serve" in done.stdout

    def test_the_policy_is_the_owners_alone_and_trusts_nobody(self, installed) -> None:
        policy = installed[0].root / "etc/kakeya/policy.toml"
        assert policy.stat().st_mode & 0o777 == 0o600
        assert "trust_pushers = false" in policy.read_text()

    def test_the_policy_is_one_and_allows_what_the_guide_asks_for(self, installed) -> None:
        policy = read_policy((installed[0].root / "etc/kakeya/policy.toml").read_bytes())
        allows = policy.facts(embedded=False).allows
        assert all(allows(name) for name in ("cuda-env-probe", "cuda-fused-code", "mlx-env-probe"))
        assert not allows("pytest-path")
        assert policy.sandbox.mode == "required"

    def test_an_edited_policy_is_kept(self, installed) -> None:
        host, _, _ = installed
        policy = host.root / "etc/kakeya/policy.toml"
        original = policy.read_text()
        policy.write_text(original + "# mine\n")
        try:
            assert host.setup().returncode == 0
            assert policy.read_text().endswith("# mine\n")
        finally:
            policy.write_text(original)

    @pytest.mark.parametrize(
        ("fault", "said"),
        [
            (lambda h: (h.root / "etc/kakeya/policy.toml").chmod(0o644), "readable by others"),
            (lambda h: (h.root / "etc/kakeya/policy.toml").unlink(), "policy"),
            (lambda h: (h.root / "etc/kakeya").chmod(0o755), "configuration folder"),
            (lambda h: (h.root / "var/lib/kakeya").chmod(0o777), "state folder"),
            (lambda h: shutil.rmtree(h.root / "var/log/kakeya"), "log folder"),
            (lambda h: (h.root / "etc/logrotate.d/kakeya-runner").unlink(), "log rotation"),
            (lambda h: (h.root / "etc/systemd/system/kakeya-runner.service").unlink(), "service unit"),
            (lambda h: (h.root / "etc/systemd/system/kakeya-runner.service").write_text("[Unit]\n"), "service unit"),
            (lambda h: (h.manager.parent / "service-state").unlink(), "not enabled and running"),
            (lambda h: (h.root / "opt/kakeya/bin/kakeya-runner").chmod(0o644), "does not run"),
            (lambda h: (h.root / "opt/kakeya/bin/python").unlink(), "does not run"),
            (lambda h: (h.root / "opt/kakeya/bin/kakeya-runner").write_text("#!/bin/false\n"), "does not run"),
        ],
        ids=[
            *("policy readable", "policy gone", "config open", "state open", "logs gone", "rotation gone"),
            *("unit gone", "unit edited", "service stopped", "runner not executable", "python moved", "runner broken"),
        ],
    )
    def test_a_planted_fault_is_found_with_its_repair(self, installed, tmp_path, fault, said: str) -> None:
        host = twin(installed[0], tmp_path)
        assert host.setup("--check").returncode == 0
        fault(host)
        checked = host.setup("--check")
        assert checked.returncode == 1, checked.stdout
        lines = checked.stdout.splitlines()
        found = [index for index, line in enumerate(lines) if line.startswith("WRONG") and said in line]
        assert found, checked.stdout
        assert lines[found[0] + 1].strip().startswith("repair: ")
        if fault_hides_the_receipt(host):
            return
        same = check(host.root / "etc/kakeya" / RECEIPT)  # what `kakeya-runner doctor` goes through
        assert same is not None
        named = [problem for problem in same.problems if said in f"{problem.name} {problem.text}"]
        assert named, same.problems
        assert all(problem.repair for problem in named)

    def test_doctor_says_that_all_is_as_it_was_made_and_names_what_is_not(self, installed, tmp_path) -> None:
        host = twin(installed[0], tmp_path)
        command = [
            sys.executable,
            "-m",
            "bridge.cli.runner",
            "doctor",
            "--policy",
            str(host.root / "etc/kakeya/policy.toml"),
        ]
        command += ["--state", str(host.root / "var/lib/kakeya")]
        run = {
            "capture_output": True,
            "text": True,
            "timeout": 120,
            "cwd": ROOT,
            "env": {**os.environ, "HOME": str(tmp_path)},
        }
        sound = subprocess.run(command, check=False, **run)
        assert "ok    set-up    as it was made" in sound.stdout, sound.stdout + sound.stderr
        (host.manager.parent / "service-state").unlink()
        broken = subprocess.run(command, check=False, **run)
        assert broken.returncode == 1
        assert "not enabled and running" in broken.stdout
        assert "enable --now kakeya-runner" in broken.stdout

    def test_the_unit_confines_the_daemon_and_leaves_the_sandbox_its_proc(self, installed) -> None:
        unit = (installed[0].root / "etc/systemd/system/kakeya-runner.service").read_text()
        assert "\nUser=kakeya-runner\n" in unit
        assert "\nNoNewPrivileges=yes\n" in unit
        assert "\nCapabilityBoundingSet=\n" in unit
        for option in (
            "ProtectKernelTunables",
            "ProtectKernelLogs",
            "ProcSubset",
            "RestrictNamespaces",
            "PrivateUsers",
        ):
            assert f"\n{option}=" not in unit

    def test_a_sound_host_passes_its_check(self, installed) -> None:
        checked = installed[0].setup("--check")
        assert checked.returncode == 0, checked.stdout
        assert checked.stdout.splitlines()[-1] == "all right"

    def test_uninstalling_leaves_no_trace(self, installed, tmp_path) -> None:
        before = Host(tmp_path / "before").files()
        host = twin(installed[0], tmp_path)
        (host.root / "var/lib/kakeya/runs").mkdir()
        done = host.setup("--uninstall")
        assert done.returncode == 0, done.stderr
        assert host.files() == before
        assert not (host.root / "opt/kakeya").exists()


def test_a_machine_without_python_or_bus_gets_one_clear_error(tmp_path) -> None:
    host = Host(tmp_path)
    done = host.setup("--python", "/bin/false")
    assert done.returncode == 2
    assert done.stderr.startswith("error: /bin/false is not Python 3.11 or newer\n  next: ")
    for bus in ("https://x/y z", "x'; id; '", "a\nUser=root"):
        assert host.setup("--bus", bus).stderr.startswith("error: the bus has characters that no route needs")
    assert host.setup("--colour").stderr.startswith("error: unknown option --colour")


def test_an_actions_archive_with_another_checksum_is_refused(tmp_path) -> None:
    host = Host(tmp_path)
    archive = tmp_path / "runner.tar.gz"
    archive.write_bytes(b"not what GitHub published")
    token = tmp_path / "token"
    token.write_text("secret-token\n")
    token.chmod(0o600)
    options = ["--actions-url", "https://example.org/o/r", "--actions-archive", str(archive)]
    done = host.setup("--dry-run", *options, "--actions-sha256", "0" * 64, "--actions-token-file", str(token))
    assert done.returncode == 2
    assert "checksum of" in done.stderr
    assert "secret-token" not in done.stdout + done.stderr


ACTIONS_RUNNER = """#!/bin/sh
# Stands in for what GitHub publishes: notes how it was called, and whether the token came by the environment.
echo "$@" > called
[ "$ACTIONS_RUNNER_INPUT_TOKEN" = secret-token ] && echo yes > .runner
"""


@pytest.fixture(scope="module")
def opened(tmp_path_factory, installed) -> Host:
    folder = tmp_path_factory.mktemp("opened")
    host = twin(installed[0], folder)
    archive, source = folder / "runner.tar.gz", folder / "archive"
    source.mkdir()
    (source / "config.sh").write_text(ACTIONS_RUNNER)
    (source / "config.sh").chmod(0o755)
    subprocess.run(["tar", "-czf", str(archive), "-C", str(source), "."], check=True, timeout=60)
    key = folder / "agent.pub"
    key.write_text("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAgentKey agent@example.org\n")
    host.options = [
        *(
            "--actions-url",
            "https://example.org/o/r",
            "--actions-archive",
            str(archive),
            "--actions-token-file",
            "-",
        ),
        *("--actions-sha256", hashlib.sha256(archive.read_bytes()).hexdigest()),
        *("--ssh-key", str(key), "--ssh-from", "100.64.0.0/10"),
    ]
    done = host.setup(*host.options, token="secret-token\n")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "secret-token" not in done.stdout + done.stderr
    return host


class TestOtherWaysIn:
    """GitHub Actions and ssh: what is made may do little, is only what was published, and goes again."""

    def test_the_token_is_in_no_argument_and_in_no_file(self, opened) -> None:
        runner = opened.root / "var/lib/kakeya-actions/runner"
        assert (runner / ".runner").exists()
        assert "secret-token" not in (runner / "called").read_text()
        for path in opened.root.rglob("*"):
            if path.is_file() and path.name != "config.sh" and "opt/kakeya/lib" not in str(path):
                assert b"secret-token" not in path.read_bytes(), path

    def test_a_second_run_needs_no_token_and_changes_nothing(self, opened) -> None:
        again = opened.setup(*opened.options, token="")
        assert again.returncode == 0, again.stderr
        assert again.stdout.splitlines()[-1] == "0 change(s) made", again.stdout
        assert opened.setup(*opened.options, "--check").returncode == 0

    @pytest.mark.parametrize(
        "text",
        [
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOne one\nssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAITwo two\n",
            'command="/bin/sh" ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOne one\n',
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOne one\rssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAITwo two\n",
            "",
        ],
    )
    def test_a_key_file_that_would_open_more_than_the_forced_command_is_refused(self, opened, tmp_path, text) -> None:
        key = tmp_path / "keys.pub"
        key.write_bytes(text.encode())
        listed = opened.root / "var/lib/kakeya/.ssh/authorized_keys"
        before = listed.read_bytes()
        done = opened.setup("--ssh-key", str(key))
        assert done.returncode == 2
        assert "is not one public key alone" in done.stderr
        assert listed.read_bytes() == before

    def test_the_actions_user_may_start_two_programs_and_stop_its_service(self, opened) -> None:
        rules = (opened.root / "etc/sudoers.d/kakeya-actions").read_text()
        assert [line for line in rules.splitlines() if not line.startswith("#")] == [
            "kakeya-actions ALL=(kakeya-runner) NOPASSWD: /opt/kakeya/libexec/once, /opt/kakeya/libexec/decide",
            "kakeya-actions ALL=(root) NOPASSWD: /usr/bin/systemctl stop kakeya-actions.service",
        ]
        if shutil.which("visudo"):
            command = ["visudo", "-cf", str(opened.root / "etc/sudoers.d/kakeya-actions")]
            assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0
        unit = (opened.root / "etc/systemd/system/kakeya-actions.service").read_text()
        assert "User=kakeya-actions" in unit
        assert "ACTIONS_RUNNER_HOOK_JOB_STARTED=/opt/kakeya/libexec/job-started.sh" in unit

    @pytest.mark.parametrize(
        "words",
        [
            ["serve"],
            ["once"],
            ["once", "--branch"],
            ["once", "--branch", "x", "--bus", "evil"],
            ["once", "--policy", "/tmp/evil"],
            ["job-hook", "digest", "/etc/shadow"],
        ],
    )
    def test_the_workflow_finds_a_command_that_does_one_thing(self, opened, words) -> None:
        command = [str(opened.root / "opt/kakeya/actions-bin/kakeya-runner"), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2
        assert "Actions may only start" in done.stderr

    def test_the_programs_pass_their_words_on_as_words(self, opened, tmp_path) -> None:
        """A stand-in for the installed command writes down its arguments."""
        shown = tmp_path / "shown"
        stand_in = tmp_path / "kakeya-runner"
        stand_in.write_text(f'#!/bin/sh\nfor word in "$@"; do echo "$word"; done > {shown}\n')
        stand_in.chmod(0o755)
        for name, given, last in (
            ("once", ["--policy=/tmp/x; id"], ["--branch=--policy=/tmp/x; id"]),
            ("decide", ["--help", "$(id)"], ["decide", "--", "--help", "$(id)"]),
        ):
            text = (opened.root / "opt/kakeya/libexec" / name).read_text()
            program = tmp_path / name
            program.write_text(text.replace("/opt/kakeya/bin/kakeya-runner", str(stand_in)))
            program.chmod(0o755)
            subprocess.run([str(program), *given], check=True, timeout=60)
            assert shown.read_text().splitlines()[-len(last) :] == last
            assert subprocess.run([str(program)], timeout=60, check=False).returncode == 2

    def test_ssh_gets_a_forced_command_from_the_tailnet_only(self, opened) -> None:
        file = opened.root / "var/lib/kakeya/.ssh/authorized_keys"
        assert file.stat().st_mode & 0o777 == 0o600
        (line,) = file.read_text().splitlines()
        assert line.startswith('restrict,from="100.64.0.0/10",command="/opt/kakeya/bin/kakeya-runner exec --policy ')
        assert line.endswith("agent@example.org")
        same = check(opened.root / "etc/kakeya" / RECEIPT)
        assert same is not None
        assert same.problems == ()
        original = file.read_text()
        file.write_text("# gone\n")
        broken = check(opened.root / "etc/kakeya" / RECEIPT)
        file.write_text(original)
        assert broken is not None
        assert [problem.name for problem in broken.problems] == ["ssh access"]

    @pytest.mark.parametrize("planted", [".ssh", ".ssh/authorized_keys"])
    def test_a_link_that_the_runner_s_user_planted_is_refused(self, opened, tmp_path, planted) -> None:
        path = opened.root / "var/lib/kakeya" / planted
        kept = path.rename(tmp_path / "kept")
        elsewhere = tmp_path / "elsewhere"
        if planted == ".ssh":
            elsewhere.mkdir()
        else:
            elsewhere.write_text("# another's\n")
        path.symlink_to(elsewhere)
        try:
            for mode in ((), ("--check",)):
                done = opened.setup(*opened.options, *mode)
                assert done.returncode == 2, done.stdout
                assert f"{planted} is a link" in done.stderr
        finally:
            path.unlink()
            kept.rename(path)
        assert (list(elsewhere.iterdir()) if planted == ".ssh" else elsewhere.read_text()) in ([], "# another's\n")

    def test_it_all_goes_again(self, opened, tmp_path) -> None:
        before = Host(tmp_path / "before").files()
        done = opened.setup(*opened.options, "--uninstall")
        assert done.returncode == 0, done.stderr
        assert opened.files() == before


MAC = {
    "mac-dry-run.txt": ["--models", "/Users/Shared/kakeya-models"],
    "mac-actions-dry-run.txt": [
        *("--create-bus", "--ssh-from", "100.64.0.0/10", "--labels", "mlx,quiet"),
        *("--actions-url", "https://example.org/o/r", "--actions-token-file", "-"),
    ],
    "mac-job-user-dry-run.txt": ["--job-user", "--create-bus"],
}


@pytest.mark.parametrize("golden", MAC)
def test_the_mac_dry_run_is_the_recorded_one(golden: str, tmp_path) -> None:
    """`UPDATE_GOLDEN=1 pytest` writes it anew; files are shown as they would be written."""
    archive, key = tmp_path / "runner.tar.gz", tmp_path / "agent.pub"
    archive.write_bytes(b"archive")
    key.write_text("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAgentKey agent@example.org\n")
    command = ["bash", str(SETUP / "setup_mac.sh"), "--dry-run", "--bus", "https://example.org/owner/bus.git"]
    command += ["--name", "mac-mini", "--python", sys.executable, *MAC[golden]]
    if "--actions-url" in command:
        command += ["--actions-archive", str(archive), "--ssh-key", str(key)]
        command += ["--actions-sha256", hashlib.sha256(b"archive").hexdigest()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    interpreter = str(Path(sys.executable).resolve())
    own = re.compile(r"(ok|would) +(git|sudo)")  # what this machine has of a Mac's tools
    lines = [line.replace(interpreter, "PYTHON") for line in done.stdout.splitlines() if not own.match(line)]
    text = re.sub(r"^\d+ change", "N change", "\n".join(lines), flags=re.MULTILINE) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        (GOLDEN / golden).write_text(text)
    assert text == (GOLDEN / golden).read_text()


def test_the_scripts_are_clean_under_shellcheck(missing) -> None:
    if shutil.which("shellcheck") is None:
        missing("shellcheck", "shellcheck is not installed")
    scripts = sorted(str(path) for path in SETUP.glob("*.sh"))
    done = subprocess.run(
        ["shellcheck", "-x", *scripts], capture_output=True, text=True, timeout=60, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout
