"""Whose code is trusted, decided on real repositories: every way we know to lend a commit a history it has not."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bridge.bus import open_bus
from bridge.bus.open.create import new_record
from bridge.bus.refbus import RefBus
from bridge.bus.views import RequestRef
from bridge.records.request import Workload
from bridge.runner.authorisation.code_trust import CodeTrust, judge_code, split_signature
from bridge.runner.authorisation.signers import Signers
from bridge.runner.policy.file import read_policy
from bridge.system.clock import SystemClock
from tests.fakes.asking import make_request
from tests.fakes.ssh_keys import Key, signers_line, write_list

CLOCK = SystemClock()
MAIN = "refs/heads/main"
CALM = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
}


@dataclass
class Repository:
    """A developer's clone and the bus it pushes to."""

    folder: Path
    policy_lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.chmod(0o700)
        self.top, self.bus_folder = self.folder / "clone", self.folder / "bus.git"
        subprocess.run(["git", "init", "-q", "--bare", self.bus_folder], check=True, env={**os.environ, **CALM})
        subprocess.run(["git", "init", "-q", "-b", "main", self.top], check=True, env={**os.environ, **CALM})
        self.root = self.commit("root")
        self.push("main")
        self.client().create(new_record(CLOCK, wake="poll", local=True))

    def git(self, *words: str, **more: str) -> str:
        done = subprocess.run(
            ["git", *words],
            cwd=self.top,
            env={**os.environ, **CALM, **more},
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    def commit(self, text: str, *options: str, **more: str) -> str:
        (self.top / "code.py").write_text(f"print({text!r})\n")
        self.git("add", "code.py")
        self.git(*[word for word in options if word == "-c" or "=" in word], "commit", "-q", "-m", text,
                 *[word for word in options if word != "-c" and "=" not in word], **more)  # fmt: skip
        return self.git("rev-parse", "HEAD")

    def odd_commit(self) -> str:
        """Commit what git has taken since 2011 and its checks refuse, and return it."""
        blob = self.git("rev-parse", "HEAD:code.py")
        inner = self._write("tree", b"100644 a\0" + bytes.fromhex(blob))
        entries = ((b"100644", b"code.py", blob), (b"040000", b"tests", inner))
        tree = self._write("tree", b"".join(b"%b %b\0%b" % (m, n, bytes.fromhex(oid)) for m, n, oid in entries))
        who, parent = b"T <t@example.com> 1700000000 +051800", self.git("rev-parse", "HEAD").encode()
        head = b"tree %b\nparent %b\nauthor %b\ncommitter %b\n\nodd\n" % (tree.encode(), parent, who, who)
        self.git("reset", "-q", "--hard", self._write("commit", head))
        return self.git("rev-parse", "HEAD")

    def _write(self, kind: str, data: bytes) -> str:
        argv = ["git", "hash-object", "-t", kind, "-w", "--literally", "--stdin"]
        return subprocess.run(argv, cwd=self.top, input=data, capture_output=True, check=True).stdout.decode().strip()

    def push(self, branch: str, *options: str) -> None:
        self.git("push", "-q", *options, str(self.bus_folder), f"HEAD:refs/heads/{branch}")

    def client(self, name: str = "client") -> RefBus:
        route = f"file://{self.bus_folder}"
        repository = self.top if name == "client" else None
        return open_bus(route, repository=repository, state=self.folder / name, clock=CLOCK)

    def ask(self, commit: str, *, tree: str | None = None) -> tuple[RequestRef, Workload]:
        """Push a request that brings a commit."""
        own_tree = self.git("rev-parse", f"{commit}^{{tree}}")
        workload = Workload(commit=commit, tree=tree or own_tree, origin="", dirty=tree is not None)
        bus = self.client()
        request = make_request(bus.identity().bus_id, "pytest-path", workload=workload)
        return bus.submit(request.canonical(), request.ref, workload).ref, workload

    def judge(self, commit: str, *, tree: str | None = None, host: str = "host") -> CodeTrust:
        """Ask for a commit and return what a host with this policy says of it."""
        ref, workload = self.ask(commit, tree=tree)
        text = "\n".join(['schema = 1\nname = "mini"', *self.policy_lines])
        policy = read_policy(text.encode())
        return judge_code(policy, Signers(policy), self.client(host).history, ref, workload)

    def protect(self, floor: str, ref: str = MAIN) -> None:
        self.policy_lines = [f'protected_refs = ["{ref}"]', f'floor_commit = "{floor}"']


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def untrusted(code_trust: CodeTrust, why: str) -> None:
    assert code_trust.trust_class == "untrusted", code_trust
    assert why in code_trust.why


def test_what_follows_the_floor_on_a_protected_ref_is_trusted(repository):
    repository.protect(repository.root)
    first, second = repository.commit("one"), repository.commit("two")
    repository.push("main")
    assert repository.judge(first).trust_class == "trusted"
    assert repository.judge(second).trust_class == "trusted"
    untrusted(repository.judge(repository.root), "is not on refs/heads/main after the floor")


@pytest.mark.ci
def test_without_rules_nothing_is_trusted(repository):
    untrusted(repository.judge(repository.root), "names no protected ref and no code signer")


def test_a_reverted_malicious_commit_is_an_ancestor_and_not_trusted(repository):
    """`--is-ancestor` accepts it: it came in by a merged branch, and was reverted."""
    repository.protect(repository.root)
    repository.git("checkout", "-q", "-b", "feature")
    malicious = repository.commit("malicious")
    repository.git("checkout", "-q", "main")
    repository.git("merge", "-q", "--no-ff", "-m", "merge", "feature")
    repository.git("revert", "-m", "1", "--no-edit", "HEAD")
    repository.push("main")
    repository.git("merge-base", "--is-ancestor", malicious, "main")  # what a naive rule asks
    untrusted(repository.judge(malicious), "is not on refs/heads/main after the floor")
    assert repository.judge(repository.git("rev-parse", "main")).trust_class == "trusted"


def test_a_floor_after_the_revert_leaves_what_was_pushed_directly_untrusted(repository):
    malicious = repository.commit("malicious")
    repository.git("revert", "--no-edit", "HEAD")
    reverted = repository.git("rev-parse", "HEAD")
    after = repository.commit("after")
    repository.push("main")
    repository.protect(reverted)
    untrusted(repository.judge(malicious), "after the floor commit")
    assert repository.judge(after).trust_class == "trusted"


@pytest.mark.ci
def test_a_replace_ref_lends_no_ancestry(repository):
    repository.protect(repository.root)
    trusted = repository.commit("trusted")
    repository.push("main")
    repository.git("checkout", "-q", "-b", "evil", repository.root)
    evil = repository.commit("evil")
    child = repository.git("commit-tree", "-p", evil, "-m", "x", f"{trusted}^{{tree}}")
    repository.git("replace", trusted, child)
    repository.git("push", "-q", str(repository.bus_folder), "+refs/replace/*:refs/replace/*")
    repository.git("merge-base", "--is-ancestor", evil, "main")  # git itself is taken in
    for _ in range(2):  # also when everything is here already
        untrusted(repository.judge(evil), "is not on refs/heads/main")
    for folder in (repository.folder / "host").rglob("HEAD"):
        assert not list(folder.parent.glob("refs/replace/*"))


def test_a_graft_in_any_repository_lends_no_ancestry(repository):
    repository.protect(repository.root)
    trusted = repository.commit("trusted")
    repository.push("main")
    repository.git("checkout", "-q", "-b", "evil", repository.root)
    evil = repository.commit("evil")
    repository.judge(trusted)  # the host's own repositories are there now
    graft = f"{trusted} {evil}\n"
    folders = [repository.bus_folder, repository.top / ".git"]
    folders += [head.parent for head in (repository.folder / "host").rglob("HEAD")]
    assert len(folders) > 2
    for folder in folders:
        (folder / "info").mkdir(exist_ok=True)
        (folder / "info" / "grafts").write_text(graft)
    repository.git("merge-base", "--is-ancestor", evil, "main")
    untrusted(repository.judge(evil), "is not on refs/heads/main")


@pytest.mark.ci
def test_a_shallow_bus_hides_the_floor_and_nothing_is_trusted(repository):
    repository.commit("one")
    two = repository.commit("two")
    repository.push("main")
    repository.protect(repository.root)
    (repository.bus_folder / "shallow").write_text(f"{two}\n")
    untrusted(repository.judge(two), "cannot be followed to the floor commit")


@pytest.mark.ci
def test_a_shallow_bus_cannot_hide_a_parent_that_the_commit_itself_names(repository):
    parent = repository.commit("one")
    two = repository.commit("two")
    repository.push("main")
    repository.protect(parent)
    (repository.bus_folder / "shallow").write_text(f"{two}\n")
    assert repository.judge(two).trust_class == "trusted"


@pytest.mark.ci
def test_a_shallow_list_in_the_hosts_own_repository_changes_nothing(repository):
    repository.protect(repository.root)
    first, second = repository.commit("one"), repository.commit("two")
    repository.push("main")
    assert repository.judge(second).trust_class == "trusted"
    (repository.folder / "host" / "control.git" / "shallow").write_text(f"{second}\n")
    assert repository.judge(first).trust_class == "trusted"


@pytest.mark.ci
def test_a_rebased_copy_is_another_commit(repository):
    repository.protect(repository.root)
    original = repository.commit("work")
    repository.push("main")
    repository.git("commit", "-q", "--amend", "-m", "the same tree, another commit")
    rebased = repository.git("rev-parse", "HEAD")
    assert repository.git("rev-parse", f"{rebased}^{{tree}}") == repository.git("rev-parse", f"{original}^{{tree}}")
    untrusted(repository.judge(rebased), "is not on refs/heads/main")


@pytest.mark.ci
def test_a_protected_ref_that_was_rewritten_vouches_for_nothing(repository):
    floor = repository.commit("floor")
    dropped = repository.commit("kept")
    repository.push("main")
    repository.protect(floor)
    assert repository.judge(dropped).trust_class == "trusted"
    repository.git("checkout", "-q", "-B", "main", repository.root)
    rewritten = repository.commit("rewritten")
    repository.push("main", "--force")
    untrusted(repository.judge(rewritten), "does not lead to the floor commit")
    untrusted(repository.judge(dropped), "does not lead to the floor commit")


@pytest.mark.ci
def test_another_ref_is_not_a_protected_one(repository):
    repository.protect(repository.root)
    repository.git("checkout", "-q", "-b", "feature")
    commit = repository.commit("feature")
    repository.push("feature")
    repository.push("main-2")
    untrusted(repository.judge(commit), "is not on refs/heads/main")
    repository.protect(repository.root, "refs/heads/gone")
    untrusted(repository.judge(commit), "has no refs/heads/gone")


@pytest.mark.ci
def test_uncommitted_changes_are_not_the_commit(repository):
    repository.protect(repository.root)
    commit = repository.commit("clean")
    repository.push("main")
    (repository.top / "code.py").write_text("print('changed')\n")
    repository.git("add", "code.py")
    changed = repository.git("write-tree")
    untrusted(repository.judge(commit, tree=changed), "differs from its commit")


def sign_with(key: Key) -> list[str]:
    return ["-c", "gpg.format=ssh", "-c", f"user.signingkey={key.path}", "-S"]


@pytest.mark.ci
def test_a_commit_of_a_code_signer_is_trusted_wherever_it_is(repository, keys, tmp_path):
    listed = write_list(tmp_path / "code", signers_line(keys["dev"], "dev", code=True))
    repository.policy_lines = [f'code_signers = "{listed}"']
    signed = repository.commit("signed", *sign_with(keys["dev"]))
    code_trust = repository.judge(signed)
    assert code_trust.trust_class == "trusted", code_trust
    assert f"code signer dev, {keys['dev'].fingerprint}" in code_trust.why
    untrusted(repository.judge(repository.commit("unsigned")), "no code signer")
    untrusted(repository.judge(repository.commit("stranger", *sign_with(keys["other"]))), "no code signer")


@pytest.mark.ci
@pytest.mark.parametrize(
    ("line", "revoked"),
    [
        ('dev namespaces="kakeya-request-v1"', ""),
        ('dev namespaces="git",valid-before="20200101"', ""),
        ('dev namespaces="git",valid-after="29990101"', ""),
        ('dev namespaces="git"', "dev"),
    ],
    ids=["request key", "expired", "not yet", "revoked"],
)
def test_a_code_key_holds_now_whatever_date_the_commit_bears(repository, keys, tmp_path, line, revoked):
    """Git itself verifies at the commit's own date, which its author chooses."""
    listed = write_list(tmp_path / "code", f"{line} {keys['dev'].public}\n")
    gone = write_list(tmp_path / "gone", revoked)
    repository.policy_lines = [f'code_signers = "{listed}"', f'revoked = "{gone}"']
    then = "2019-06-01T00:00:00Z"
    signed = repository.commit("backdated", *sign_with(keys["dev"]), GIT_COMMITTER_DATE=then, GIT_AUTHOR_DATE=then)
    assert repository.judge(signed).trust_class == "untrusted"


@pytest.mark.ci
def test_the_configuration_of_a_repository_names_no_signer(repository, keys, tmp_path):
    swapped = write_list(tmp_path / "swapped", signers_line(keys["other"], "dev", code=True))
    listed = write_list(tmp_path / "code", signers_line(keys["dev"], "dev", code=True))
    repository.policy_lines = [f'code_signers = "{listed}"']
    signed = repository.commit("stranger", *sign_with(keys["other"]))
    repository.judge(signed)
    for head in [repository.bus_folder / "HEAD", *(repository.folder / "host").rglob("HEAD")]:
        setting = ["git", "config", "--file", str(head.parent / "config"), "gpg.ssh.allowedSignersFile", str(swapped)]
        subprocess.run(setting, check=True)
    untrusted(repository.judge(signed), "no code signer")


@pytest.mark.ci
def test_a_signature_is_over_this_very_commit(repository, keys, tmp_path):
    listed = write_list(tmp_path / "code", signers_line(keys["dev"], "dev", code=True))
    repository.policy_lines = [f'code_signers = "{listed}"']
    signed = repository.commit("signed", *sign_with(keys["dev"]))
    raw = repository.git("cat-file", "commit", signed) + "\n"
    payload, signature = split_signature(raw.encode())
    assert b"gpgsig" not in payload
    assert signature.startswith(b"-----BEGIN SSH SIGNATURE-----\n")
    evil = repository.commit("evil")
    tree = repository.git("rev-parse", f"{evil}^{{tree}}")
    forged = raw.replace(repository.git("rev-parse", f"{signed}^{{tree}}"), tree)
    done = subprocess.run(
        ["git", "hash-object", "-t", "commit", "-w", "--stdin"],
        cwd=repository.top, input=forged, env={**os.environ, **CALM}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    untrusted(repository.judge(done.stdout.strip()), "no code signer")


@pytest.mark.ci
def test_a_commit_the_bus_does_not_give_is_not_trusted(repository):
    repository.protect(repository.root)
    ref, workload = repository.ask(repository.root)
    text = "\n".join(['schema = 1\nname = "mini"', *repository.policy_lines])
    policy = read_policy(text.encode())
    unknown = workload.model_copy(update={"commit": "e" * 40})
    untrusted(judge_code(policy, Signers(policy), repository.client("host").history, ref, unknown), "cannot be read")


@pytest.mark.parametrize("place", ["before the floor", "after the floor", "the commit that is asked"])
def test_a_slip_of_an_old_tool_in_the_history_makes_no_code_untrusted(repository, place):
    """As in psf/requests (a time zone of six digits) and pallets/flask (a zero before a mode)."""
    if place == "before the floor":
        repository.odd_commit()
        repository.push("main")
    repository.protect(repository.commit("floor"))
    repository.commit("one")
    commit = repository.git("rev-parse", "HEAD") if place != "the commit that is asked" else repository.odd_commit()
    if place == "after the floor":
        repository.odd_commit()
    repository.push("main")
    assert repository.judge(commit).trust_class == "trusted"
