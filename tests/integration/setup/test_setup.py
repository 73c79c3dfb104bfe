"""runner-setup: real on Linux below a throw-away root with a stub service manager; macOS by its dry run."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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
        self.root = folder / "root"
        for name in ("opt", "etc/systemd/system", "etc/logrotate.d", "var/lib", "var/log"):
            (self.root / name).mkdir(parents=True)
        self.manager = folder / "service-manager"
        self.manager.write_text(SERVICE_MANAGER)
        self.manager.chmod(0o755)

    def setup(self, *options: str) -> subprocess.CompletedProcess[str]:
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
        return subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)

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


def twin(host: Host, folder: Path) -> Host:
    """Copy an installed host; the packages, which no fault touches, are shared by a link."""
    copy = Host(folder, host.source)
    shutil.rmtree(copy.root)
    shutil.copytree(host.root, copy.root, symlinks=True, ignore=shutil.ignore_patterns("lib", "lib64"))
    for name in ("lib", "lib64"):
        (copy.root / "opt/kakeya" / name).symlink_to(host.root / "opt/kakeya" / name)
    shutil.copytree(host.root / "var/lib", copy.root / "var/lib")
    shutil.copy(host.manager.parent / "service-state", copy.manager.parent / "service-state")
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


def test_the_mac_dry_run_is_the_recorded_one() -> None:
    command = ["bash", str(SETUP / "setup_mac.sh"), "--dry-run", "--bus", "https://example.org/owner/bus.git"]
    done = subprocess.run(
        [*command, "--name", "mac-mini", "--python", sys.executable, "--models", "/Users/Shared/kakeya-models"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    interpreter = str(Path(sys.executable).resolve())
    lines = [line.replace(interpreter, "PYTHON") for line in done.stdout.splitlines() if "git" not in line]
    assert lines == (GOLDEN / "mac-dry-run.txt").read_text().splitlines()


def test_the_scripts_are_clean_under_shellcheck(missing) -> None:
    if shutil.which("shellcheck") is None:
        missing("shellcheck", "shellcheck is not installed")
    scripts = sorted(str(path) for path in SETUP.glob("*.sh"))
    done = subprocess.run(
        ["shellcheck", "-x", *scripts], capture_output=True, text=True, timeout=60, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout
