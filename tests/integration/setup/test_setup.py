"""The set-up of a Linux machine, for real below a throw-away root with a stub service manager."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from bridge.runner.maintenance.setup_checks import RECEIPT, check
from bridge.runner.policy.file import read_policy
from tests.integration.setup.machine import ROOT, SETUP, Host, copied_source, linked_package, twin


def build_again(wheel: Path) -> None:
    """Make of a wheel one of the same version and another file, as a later clone does."""
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    files["kakeya-tree.pth"] += b"# of a later clone\n"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)


def fault_hides_the_receipt(host: Host) -> bool:
    return not (host.root / "etc/kakeya" / RECEIPT).exists()


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

    def test_a_service_goes_by_the_unit_that_a_later_run_wrote(self, installed, tmp_path) -> None:
        host = twin(installed[0], tmp_path)
        moved = ("--bus", "https://example.org/owner/moved.git")
        done = host.setup(*moved)
        assert done.returncode == 0, done.stderr
        assert "owner/moved.git" in (host.root / "etc/systemd/system/kakeya-runner.service").read_text()
        assert host.running("kakeya-runner").read_text() == "restarted\n", done.stdout
        assert host.running("kakeya-run.socket").read_text() == "on\n"
        assert host.setup(*moved).stdout.splitlines()[-1] == "0 change(s) made"

    def test_another_package_takes_the_place_of_the_one_before(self, installed, tmp_path) -> None:
        host = twin(installed[0], tmp_path)
        environment = host.root / "opt/kakeya"
        for name in ("lib", "lib64"):
            (environment / name).unlink()
        shutil.copytree(installed[0].root / "opt/kakeya/lib", environment / "lib", symlinks=True)
        (environment / "lib64").symlink_to("lib")
        host.source = linked_package(tmp_path, version="99.1")
        checked = host.setup("--check")
        assert checked.returncode == 1
        assert "code: not as " in checked.stdout
        done = host.setup()
        assert done.returncode == 0, done.stdout + done.stderr
        version = [environment / "bin/python", "-I", "-c", "from importlib.metadata import *; print(version('kakeya'))"]
        assert subprocess.run(version, capture_output=True, text=True, check=True).stdout == "99.1\n"
        assert host.running("kakeya-runner").read_text() == "restarted\n", done.stdout
        assert host.setup().stdout.splitlines()[-1] == "0 change(s) made"

        build_again(host.source)
        later = host.setup("--check")
        assert f"code: not as {host.source} has it: kakeya-tree.pth\n" in later.stdout
        assert host.setup().returncode == 0
        assert host.setup().stdout.splitlines()[-1] == "0 change(s) made"

    def test_the_installed_runner_starts_from_its_own_environment(self, installed) -> None:
        host, _, _ = installed
        runner = host.root / "opt/kakeya/bin/kakeya-runner"
        done = subprocess.run([str(runner), "--help"], capture_output=True, text=True, timeout=240, check=False)
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
        assert (policy.sandbox.mode, policy.sandbox.socket) == ("required", "/run/kakeya-run.sock")

    def test_bwrap_gets_a_profile_where_apparmor_restricts_namespaces_and_the_system_has_none(
        self, installed, tmp_path
    ) -> None:
        profile = installed[0].root / "etc/apparmor.d/kakeya-bwrap"
        assert "flags=(unconfined) {\n  userns,\n}" in profile.read_text()
        host = twin(installed[0], tmp_path)
        (host.root / "etc/apparmor.d/kakeya-bwrap").unlink()
        assert "AppArmor profile of bwrap" in host.setup("--check").stdout
        own = host.root / "etc/apparmor.d/bwrap-userns-restrict"
        own.write_text("profile bwrap /usr/bin/bwrap flags=(attach_disconnected) {\n}\n")
        assert "the system has a profile for bwrap" in host.setup("--check").stdout

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
        ("fault", "problem_text"),
        [
            (lambda h: (h.root / "etc/kakeya/policy.toml").chmod(0o644), "readable by others"),
            (lambda h: (h.root / "etc/kakeya/policy.toml").unlink(), "policy"),
            (lambda h: (h.root / "etc/kakeya").chmod(0o755), "configuration folder"),
            (lambda h: (h.root / "var/lib/kakeya").chmod(0o777), "state folder"),
            (lambda h: shutil.rmtree(h.root / "var/log/kakeya"), "log folder"),
            (lambda h: (h.root / "etc/logrotate.d/kakeya-runner").unlink(), "log rotation"),
            (lambda h: (h.root / "etc/systemd/system/kakeya-runner.service").unlink(), "service unit"),
            (lambda h: (h.root / "etc/systemd/system/kakeya-runner.service").write_text("[Unit]\n"), "service unit"),
            (lambda h: (h.root / "etc/systemd/system/kakeya-run@.service").write_text("[Unit]\n"), "unit of a run"),
            (lambda h: (h.root / "etc/systemd/system/kakeya-run.socket").unlink(), "socket of the runs"),
            (lambda h: h.running("kakeya-runner").unlink(), "not enabled and running"),
            (lambda h: h.running("kakeya-run.socket").unlink(), "not enabled and running"),
            (lambda h: (h.root / "opt/kakeya/bin/kakeya-runner").chmod(0o644), "does not run"),
            (lambda h: (h.root / "opt/kakeya/bin/python").unlink(), "does not run"),
            (lambda h: (h.root / "opt/kakeya/bin/kakeya-runner").write_text("#!/bin/false\n"), "does not run"),
        ],
        ids=[
            *("policy readable", "policy gone", "config open", "state open", "logs gone", "rotation gone"),
            *(
                "unit gone",
                "unit edited",
                "run unit edited",
                "socket gone",
                "service stopped",
                "socket stopped",
                "runner not executable",
                "python moved",
                "runner broken",
            ),
        ],
    )
    def test_a_planted_fault_is_found_with_its_repair(self, installed, tmp_path, fault, problem_text: str) -> None:
        host = twin(installed[0], tmp_path)
        fault(host)
        checked = host.setup("--check")
        assert checked.returncode == 1, checked.stdout
        lines = checked.stdout.splitlines()
        indices = [index for index, line in enumerate(lines) if line.startswith("WRONG") and problem_text in line]
        assert indices, checked.stdout
        assert lines[indices[0] + 1].strip().startswith("repair: ")
        if fault_hides_the_receipt(host):
            return
        same = check(host.root / "etc/kakeya" / RECEIPT)  # what `kakeya-runner doctor` goes through
        assert same is not None
        named = [problem for problem in same.problems if problem_text in f"{problem.name} {problem.text}"]
        assert named, same.problems
        assert all(problem.remedy for problem in named)

    @pytest.mark.ci
    def test_doctor_says_that_all_is_as_it_was_made_and_names_what_is_not(self, installed, tmp_path) -> None:
        host = twin(installed[0], tmp_path)
        command = [
            sys.executable,
            "-m",
            "bridge.cli.host.main",
            "doctor",
            "--policy",
            str(host.root / "etc/kakeya/policy.toml"),
        ]
        command += ["--state", str(host.root / "var/lib/kakeya")]
        run = {
            "capture_output": True,
            "text": True,
            "timeout": 280,
            "cwd": ROOT,
            "env": {**os.environ, "HOME": str(tmp_path)},
        }
        sound = subprocess.run(command, check=False, **run)
        assert "ok          set-up: as it was made" in sound.stdout, sound.stdout + sound.stderr
        host.running("kakeya-runner").unlink()
        broken = subprocess.run(command, check=False, **run)
        assert broken.returncode == 1
        assert "not enabled and running" in broken.stdout
        assert "enable --now kakeya-runner" in broken.stdout

    @pytest.mark.ci
    @pytest.mark.parametrize("gone", ["interpreter", "program"])
    def test_an_environment_that_does_not_start_is_whole_after_another_run(self, installed, tmp_path, gone) -> None:
        host = twin(installed[0], tmp_path)
        programs = host.root / "opt/kakeya/bin"
        if gone == "program":
            (programs / "kakeya-runner").write_text("#!/bin/false\n")
        else:
            for link in [path for path in programs.iterdir() if path.is_symlink()]:
                link.unlink()
                link.symlink_to(tmp_path / "gone" / link.name)
        assert host.setup("--check").returncode == 1
        done = host.setup()
        assert done.returncode == 0, done.stdout + done.stderr
        checked = host.setup("--check")
        assert checked.stdout.splitlines()[-1] == "all right", checked.stdout

    def test_the_units_confine_the_daemon_and_leave_the_sandbox_its_proc(self, installed) -> None:
        unit = (installed[0].root / "etc/systemd/system/kakeya-runner.service").read_text()
        assert "\nUser=kakeya-runner\n" in unit
        assert "\nNoNewPrivileges=yes\n" in unit
        assert "\nCapabilityBoundingSet=\n" in unit
        assert "\nRestrictNamespaces=yes\n" in unit  # it starts no sandbox
        run = (installed[0].root / "etc/systemd/system/kakeya-run@.service").read_text()
        assert "\nDynamicUser=yes\n" in run
        for option in (
            "ProtectKernelTunables",
            "ProtectKernelLogs",
            "ProcSubset",
            "RestrictNamespaces",
            "PrivateUsers",
        ):
            assert f"\n{option}=" not in run

    def test_a_sound_host_passes_its_check(self, installed) -> None:
        checked = installed[0].setup("--check")
        assert checked.returncode == 0, checked.stdout
        assert checked.stdout.splitlines()[-1] == "all right"

    def test_a_copy_of_a_sound_host_passes_its_check(self, installed, tmp_path) -> None:
        """What is found where a fault is planted is the fault's."""
        checked = twin(installed[0], tmp_path).setup("--check")
        assert (checked.returncode, checked.stdout.splitlines()[-1]) == (0, "all right"), checked.stdout

    def test_uninstalling_leaves_no_trace(self, installed, tmp_path) -> None:
        before = Host(tmp_path / "before").files()
        host = twin(installed[0], tmp_path)
        (host.root / "var/lib/kakeya/runs/of-a-day").mkdir(parents=True)
        done = host.setup("--uninstall")
        assert done.returncode == 0, done.stderr
        assert host.files() == before
        assert not (host.root / "opt/kakeya").exists()


@pytest.mark.ci
def test_an_installation_gets_the_small_models_weights_from_the_clone_it_was_made_of(installed, tmp_path) -> None:
    """What pip builds of a clone has none, and a first run of a preset with a small model failed."""
    tree = tmp_path / "tree"
    tree.mkdir()
    copied_source(tree)
    weights = {path.relative_to(tree): path.read_bytes() for path in tree.rglob("engine/assets/*/*.safetensors")}
    for name in weights:
        (tree / name).unlink()
    host = twin(installed[0], tmp_path)
    engine = host.root / "opt/kakeya/bin/kakeya-engine"
    start = f"import sys\nsys.path.insert(0, {str(tree)!r})\nfrom engine.cli.main import main\n"
    engine.write_text(f"#!{sys.executable}\n{start}sys.exit(main(sys.argv[1:]))\n")  # as installed without weights
    add = f"{engine} assets add"

    of_wheel = host.setup("--check")  # which has nothing to take them from
    assert of_wheel.returncode == 0, of_wheel.stdout
    assert f"ok     models: no weights of the small ones in {host.source}; from a clone" in of_wheel.stdout
    assert f"{add} CLONE" in of_wheel.stdout

    clone = ("--package", str(ROOT))
    lacking = host.setup("--check", *clone)
    assert lacking.returncode == 1
    assert "WRONG  models: not all of the small ones have their weights\n" in lacking.stdout
    assert f"       repair: {add} {ROOT}\n" in lacking.stdout
    planned = host.setup("--dry-run", *clone)
    assert f"would  add the small models' weights of {ROOT}\n" in planned.stdout
    assert not any((tree / name).exists() for name in weights)

    brought = host.setup(*clone)
    assert brought.returncode == 0, brought.stdout + brought.stderr
    assert brought.stdout.splitlines()[-1] == "1 change(s) made"
    assert {name: (tree / name).read_bytes() for name in weights} == weights
    assert host.setup(*clone).stdout.splitlines()[-1] == "0 change(s) made"
    assert "ok     models: the small ones have their weights\n" in host.setup("--check", *clone).stdout


PIP = """#!/bin/sh
# Stands in for pip: says what it was given, what lies there, and leaves a folder there as a build does.
for built; do :; done
built="${built%\\[torch]}"
echo "$built"
cd "$built" && find . -type f && mkdir build
"""


def test_a_clone_is_built_in_a_copy_without_what_earlier_builds_left_in_it(tmp_path) -> None:
    """A module that the clone lost since would be installed again, and every later run would find it unlike."""
    clone, prefix = tmp_path / "clone", tmp_path / "prefix"
    for folder in (clone / "bridge", clone / "engine", clone / "build/lib/bridge", prefix / "bin"):
        folder.mkdir(parents=True)
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE", "bridge/here.py", "build/lib/bridge/gone.py"):
        (clone / name).touch()
    (prefix / "bin/python").write_text(PIP)
    (prefix / "bin/python").chmod(0o755)
    before = sorted(clone.rglob("*"))
    words = f"source {SETUP}/lib.sh; PACKAGE={clone}; pip_install_package {prefix} '[torch]' --no-deps"

    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr
    place, *files = done.stdout.splitlines()
    assert sorted(files) == ["./LICENSE", "./NOTICE", "./README.md", "./bridge/here.py", "./pyproject.toml"]
    assert not Path(place).exists()
    assert sorted(clone.rglob("*")) == before


@pytest.mark.parametrize("name", ["bridge/a.py", "bridge/overview.txt", "engine/assets/prompts/code.json.gz"])
def test_each_kind_of_file_that_a_clone_installs_is_compared(tmp_path: Path, name: str) -> None:
    clone, site = tmp_path / "clone", tmp_path / "site"
    for folder in (clone, site):
        for file in ("bridge/__init__.py", "engine/__init__.py", name):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).touch()
    (site / "kakeya-1.0.dist-info").mkdir()
    (site / "kakeya-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: kakeya\nVersion: 1.0\n")
    words = f'source {SETUP}/lib.sh; {sys.executable} -P -c "$UNLIKE_PACKAGE" {clone}'

    def unlike() -> str:
        path = {**os.environ, "PYTHONPATH": str(site)}
        done = subprocess.run(["bash", "-c", words], env=path, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout

    assert unlike() == ""
    (clone / name).write_text("# of a later commit\n")
    assert unlike() == f"{name}\n"


@pytest.mark.parametrize(
    ("manager", "words"),
    [
        ("apt-get", "apt-get install -y -qq bubblewrap"),
        ("dnf", "dnf install -y -q bubblewrap"),
        ("zypper", "zypper --non-interactive --quiet install bubblewrap"),
    ],
)
def test_what_is_missing_is_installed_as_the_system_installs_it(tmp_path, manager, words) -> None:
    program = tmp_path / manager
    program.write_text('#!/bin/sh\necho "ran ${0##*/} $*"\n')
    program.chmod(0o755)
    done, checked = needs(manager, tmp_path, "install"), needs(manager, tmp_path, "check")

    assert done.stdout.splitlines() == ["do     install bubblewrap", f"ran {words}"], done.stderr
    assert checked.stdout.splitlines() == ["WRONG  bwrap is not installed", f"       repair: {words}"]


def test_a_system_whose_packages_set_up_does_not_know_is_told_what_it_lacks(tmp_path) -> None:
    done = needs("pacman", tmp_path, "install")

    assert done.returncode == 2
    assert done.stderr == "error: bwrap is not installed\n  next: install the package bubblewrap\n"


def needs(manager: str, programs: Path, mode: str) -> subprocess.CompletedProcess[str]:
    """Ask the script's function for bwrap where it is not, on a system that has one package manager."""
    script = (SETUP / "setup_gpu.sh").read_text()
    names = ("unfit", "install_words", "needs")
    functions = [script[script.index(f"\n{name}() {{") :].partition("\n}\n")[0] + "\n}\n" for name in names]
    only = f'command() {{ [ "$2" = {manager} ]; }}; PATH={programs}:$PATH MODE={mode}'
    words = f"source {SETUP}/lib.sh\n{''.join(functions)}{only}; needs bwrap bubblewrap"
    return subprocess.run(["bash", "-c", words], capture_output=True, text=True, timeout=60, check=False)


def test_a_machine_without_python_or_bus_gets_one_clear_error(tmp_path) -> None:
    host = Host(tmp_path)
    done = host.setup("--python", "/bin/false")
    assert done.returncode == 2
    assert done.stderr.startswith("error: /bin/false is not Python 3.11 or newer\n  next: ")
    for bus in ("https://x/y z", "x'; id; '", "a\nUser=root"):
        assert host.setup("--bus", bus).stderr.startswith("error: the bus has characters that no route needs")
    assert host.setup("--colour").stderr.startswith("error: unknown option --colour")


@pytest.mark.parametrize(
    "words",
    [
        ("--name", "Studio"),
        ("--name", "a\nb"),
        ("--labels", "quiet,M4 Max"),
        ("--labels", 'a"b'),
        ("--models", "models"),
    ],
)
def test_a_word_that_no_policy_takes_is_refused_before_a_policy_is_written(tmp_path, words) -> None:
    """Written once it would stay: set-up leaves a policy as it is, and no key is made for one that is none."""
    host = Host(tmp_path)
    before = host.files()

    done = host.setup(*words)

    assert (done.returncode, host.files()) == (2, before), done.stdout
    assert done.stderr.startswith(f"error: {words[0]}: got '{words[1]}'; expected ")
    assert f"  next: {words[0]} " in done.stderr


def test_an_interpreter_that_the_service_s_user_may_not_come_to_is_said_in_one_line(tmp_path) -> None:
    """Such as root's own, which pyenv keeps in root's home: the service would not start."""
    shut = tmp_path / "shut"
    shut.mkdir(mode=0o700)
    program = shut / "python3"
    program.write_text(f'#!/bin/sh\ncase "$2" in *realpath*) echo "$0" ;; *) exec {sys.executable} "$@" ;; esac\n')
    program.chmod(0o755)
    words = ["bash", str(SETUP / "setup_gpu.sh"), "--bus", "https://example.org/owner/bus.git"]
    words += ["--service-manager", "/bin/false", "--python", str(program)]
    done = subprocess.run([*words, "--check"], capture_output=True, text=True, timeout=240, check=False)
    lines = done.stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if "interpreter" in line)
    assert lines[at].startswith(f"WRONG  interpreter: the user kakeya-runner may not come to {program}, because ")
    assert lines[at].endswith(" is closed to others")
    assert lines[at + 1].strip().startswith("repair: install a Python for every user")
    assert done.returncode == 1


@pytest.mark.ci
def test_the_scripts_are_clean_under_shellcheck(missing) -> None:
    if shutil.which("shellcheck") is None:
        missing("shellcheck", "shellcheck is not installed")
    scripts = sorted(str(path) for path in SETUP.glob("*.sh"))
    done = subprocess.run(
        ["shellcheck", "-x", *scripts], capture_output=True, text=True, timeout=240, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout
