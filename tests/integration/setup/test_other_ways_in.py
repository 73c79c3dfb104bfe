"""GitHub Actions and ssh as ways into a machine that was set up."""

from __future__ import annotations

import hashlib
import shutil
import subprocess

import pytest

from bridge.runner.maintenance.setup_checks import RECEIPT, check
from tests.integration.setup.machine import SETUP, Host, twin


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


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--ssh-key", "none.pub"), "error: no public key at none.pub\n"),
        (
            ("--actions-url", "https://example.org/o/r", "--actions-archive", "none.tar.gz"),
            "error: no Actions runner archive at 'none.tar.gz'\n",
        ),
    ],
)
def test_a_key_or_an_archive_that_is_none_is_refused_before_anything_is_made(tmp_path, words, error) -> None:
    """Changed before, the environment would be found right by the next run, which would not restart the service."""
    host = Host(tmp_path)
    before = host.files()

    done = host.setup(*words)

    assert (done.returncode, host.files()) == (2, before), done.stdout
    assert done.stderr.startswith(error)


def test_a_user_for_jobs_goes_together_with_every_way_in(tmp_path) -> None:
    """Whoever serves, the runner's user asks for runs at the socket, and the unit behind it is the user for jobs."""
    host, key = Host(tmp_path), tmp_path / "agent.pub"
    key.write_text("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAgentKey agent@example.org\n")
    archive = tmp_path / "runner.tar.gz"
    archive.write_bytes(b"what GitHub published")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    actions = ["--actions-url", "https://example.org/o/r", "--actions-archive", str(archive)]
    done = host.setup("--job-user", "--ssh-key", str(key), *actions, "--actions-sha256", digest, "--dry-run")
    assert done.returncode == 0, done.stderr
    for line in ("SocketUser=kakeya-runner", "User=kakeya-job", "bin/kakeya-runner once", "forced command only"):
        assert line in done.stdout, line


def test_a_key_that_is_let_in_from_fewer_addresses_has_no_other_line_left(tmp_path) -> None:
    """sshd takes any line of a key that fits: the wider one, which was there before, would go on to count."""
    for name in ("One", "Two"):
        (tmp_path / name).write_text(f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{name} {name.lower()}\n")
    places = f"ROOT={tmp_path} PREFIX={tmp_path}/opt CONFIG={tmp_path}/etc STATE={tmp_path}/state DAEMON=kakeya-runner"
    steps = [
        f"SSH_KEY_FILE={tmp_path}/{name} SSH_FROM={source}; ensure_ssh_access $STATE"
        for name, source in (("One", ""), ("Two", ""), ("One", "100.64.0.0/10"), ("One", "100.64.0.0/10"))
    ]
    sources = f"source {SETUP}/lib.sh; source {SETUP}/access.sh; OWN_PATHS=({tmp_path}); mkdir {tmp_path}/state"
    words = "; ".join((sources, places, *steps))
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr
    assert [line[:2] for line in done.stdout.splitlines()] == ["do", "do", "do", "ok"], done.stdout
    listed = tmp_path / "state" / ".ssh" / "authorized_keys"
    assert [line.split()[-1] for line in listed.read_text().splitlines()] == ["two", "one"]
    assert listed.read_text().splitlines()[1].startswith('restrict,from="100.64.0.0/10",command=')
    assert [path.name for path in listed.parent.iterdir()] == ["authorized_keys"]
    assert listed.stat().st_mode & 0o777 == 0o600


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
    subprocess.run(["tar", "-czf", str(archive), "-C", str(source), "."], check=True, timeout=240)
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

    @pytest.mark.ci
    def test_the_token_is_in_no_argument_and_in_no_file(self, opened) -> None:
        runner = opened.root / "var/lib/kakeya-actions/runner"
        assert (runner / ".runner").exists()
        assert "secret-token" not in (runner / "called").read_text()
        for path in opened.root.rglob("*"):
            if path.is_file() and path.name != "config.sh" and "opt/kakeya/lib" not in str(path):
                assert b"secret-token" not in path.read_bytes(), path

    @pytest.mark.ci
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
            assert subprocess.run(command, capture_output=True, timeout=240, check=False).returncode == 0
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
            ["job-hook", "decide", "/etc/shadow"],
        ],
    )
    def test_the_workflow_finds_a_command_that_does_one_thing(self, opened, words) -> None:
        command = [str(opened.root / "opt/kakeya/actions-bin/kakeya-runner"), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
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
            ("decide", ["--help", "$(id)"], ["--", "--help", "$(id)"]),
        ):
            text = (opened.root / "opt/kakeya/libexec" / name).read_text()
            program = tmp_path / name
            program.write_text(text.replace("/opt/kakeya/bin/kakeya-runner", str(stand_in)))
            program.chmod(0o755)
            subprocess.run([str(program), *given], check=True, timeout=240)
            assert shown.read_text().splitlines()[-len(last) :] == last
            assert subprocess.run([str(program)], timeout=240, check=False).returncode == 2

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
        moved_path = path.rename(tmp_path / "kept")
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
            moved_path.rename(path)
        assert (list(elsewhere.iterdir()) if planted == ".ssh" else elsewhere.read_text()) in ([], "# another's\n")

    @pytest.mark.parametrize("planted", ["var/lib/kakeya", "etc/kakeya", "var/log/kakeya", "var/lib/kakeya-actions"])
    def test_a_link_in_the_place_of_a_folder_that_set_up_made_is_refused(self, opened, tmp_path, planted) -> None:
        path = opened.root / planted
        moved_path = path.rename(tmp_path / "kept")
        (tmp_path / "elsewhere").mkdir()
        path.symlink_to(tmp_path / "elsewhere")
        try:
            done = opened.setup(*opened.options, token="secret-token\n")
        finally:
            path.unlink()
            moved_path.rename(path)
        assert done.returncode == 2, done.stdout
        assert f"{path.name} is a link" in done.stderr
        assert list((tmp_path / "elsewhere").iterdir()) == []

    @pytest.mark.parametrize("planted", ["etc/kakeya/policy.toml", "etc/kakeya/setup.tsv"])
    def test_a_file_that_is_a_link_is_not_written_through(self, opened, tmp_path, planted) -> None:
        path, elsewhere = opened.root / planted, tmp_path / "elsewhere"
        moved_path = path.rename(tmp_path / "kept")
        elsewhere.write_text("another's\n")
        path.symlink_to(elsewhere)
        try:
            done = opened.setup(*opened.options, "--labels", "other")
        finally:
            path.unlink()
            moved_path.rename(path)
        assert (done.returncode, elsewhere.read_text()) == (2, "another's\n"), done.stdout
        assert f"{path.name} is a link" in done.stderr

    def test_the_other_way_in_is_stopped_where_set_up_is_run_for_one(self, opened, tmp_path) -> None:
        """Who goes back to the daemon that polls wants no jobs of Actions on the host any more."""
        polls, wakes = "etc/systemd/system/kakeya-runner.service", "etc/systemd/system/kakeya-actions.service"
        assert not (opened.root / polls).exists()
        assert not opened.running("kakeya-runner").exists()
        host = twin(opened, tmp_path)

        checked = host.setup("--check")
        assert checked.returncode == 1
        assert f"WRONG  the service of GitHub Actions is still set up: {host.root}/{wakes}\n" in checked.stdout
        done = host.setup()
        assert done.returncode == 0, done.stdout + done.stderr
        assert [name for name in (wakes, "etc/sudoers.d/kakeya-actions") if (host.root / name).exists()] == []
        assert not host.running("kakeya-actions").exists()
        assert host.running("kakeya-runner").exists()
        assert host.setup().stdout.splitlines()[-1] == "0 change(s) made"

    def test_it_all_goes_again(self, opened, tmp_path) -> None:
        before = Host(tmp_path / "before").files()
        done = opened.setup(*opened.options, "--uninstall")
        assert done.returncode == 0, done.stderr
        assert opened.files() == before


ACCOUNTS = """
getent() { echo "$2:x:990:990::/var/lib/kakeya:$SHELL_OF_USER"; }
dscl() {
  case "$2 $4" in
    "-read UserShell") echo "UserShell: $SHELL_OF_USER" ;;
    -create*) echo "changed: $*" ;;
  esac
}
usermod() { echo "changed: $*"; }
"""


@pytest.mark.parametrize(
    ("script", "without", "change"),
    [
        ("setup_gpu.sh", "/usr/sbin/nologin", "--shell /bin/sh someone"),
        ("setup_mac.sh", "/usr/bin/false", ". -create /Users/someone UserShell /bin/sh"),
    ],
)
def test_a_user_made_without_ssh_access_gets_a_shell_when_a_key_comes(script, without, change) -> None:
    """The guide adds the key to a machine that was set up: sshd starts the forced command with the user's shell."""
    text = (SETUP / script).read_text()
    function = text[text.index("\nensure_user() {") :].partition("\n}\n")[0] + "\n}\n"
    start = f"source {SETUP}/lib.sh; source {SETUP}/access.sh\n{ACCOUNTS}{function}"

    def say(shell: str, words: str) -> list[str]:
        program = f"{start}SHELL_OF_USER={shell}; {words}"
        done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    given = "ensure_user someone /home /bin/sh"
    assert say(without, given)[1:] == [f"changed: {change}"]
    (line, repair) = say(without, f"MODE=check; {given}")
    assert line == f"WRONG  user someone: sshd starts the forced command with its shell, which is {without}"
    assert repair.endswith(change)
    for shell, words in (("/bin/sh", given), ("/bin/bash", given), (without, "ensure_user someone /home ''")):
        assert say(shell, words) == ["ok     user someone"]
