"""Words of real servers, and the cause that each stands for."""

from __future__ import annotations

import pytest

from bridge.system.remote_words import Cause, cause_of, remedy_of

HUNG_UP = "send-pack: unexpected disconnect while reading sideband packet\nfatal: the remote end hung up unexpectedly"
WORDS = [
    (f"error: RPC failed; HTTP 403 curl 22 The requested URL returned error: 403\n{HUNG_UP}", Cause.RIGHTS),
    ("remote: Permission to o/r.git denied to someone.\nfatal: unable to access: error: 403", Cause.RIGHTS),
    ("FATAL: W refs/kakeya/bus repo user DENIED by fallthru\nfatal: Could not read from remote", Cause.RIGHTS),
    ("git@host: Permission denied (publickey).\nfatal: Could not read from remote repository.", Cause.RIGHTS),
    ("fatal: could not read Username for 'https://host': terminal prompts disabled", Cause.RIGHTS),
    ("fatal: '/srv/x' does not appear to be a git repository\nfatal: Could not read from", Cause.NO_REPOSITORY),
    ("fatal: detected dubious ownership in repository at '/srv/x'\nTo add an exception", Cause.OWNER),
    ("deny updating a hidden ref", Cause.RULE),
    ("pre-receive hook declined; only branches and tags may be pushed", Cause.RULE),
    ("protected branch hook declined; GH006: Protected branch update failed", Cause.RULE),
    ("TF402455: Pushes to this branch are not permitted", Cause.RULE),
    ("prohibited by Gerrit: not permitted: create", Cause.RULE),
    ("GH013: Repository rule violations found; Commits must have verified signatures.", Cause.SIGNATURE),
    ("pre-receive hook declined; GitLab: Commit must be signed with a GPG signature", Cause.SIGNATURE),
    ("GitLab: You cannot push commits for 'kakeya@localhost'. You can only push commits", Cause.IDENTITY),
    ("ERROR: commit 1f2e: email address kakeya@localhost is not registered in your account", Cause.IDENTITY),
    ("hook declined; expected committer email 'a@b' but found 'kakeya@localhost'", Cause.IDENTITY),
    ("GitLab: Commit message does not follow the pattern 'OPS-\\d+'", Cause.MESSAGE),
    ("remote: You have exceeded a secondary rate limit\nfatal: unable to access: error: 429", Cause.RATE),
    ("error: RPC failed; HTTP 502 curl 22 The requested URL returned error: 502", Cause.OUTAGE),
    ("fatal: unable to access 'https://h/': Empty reply from server", Cause.OUTAGE),
    ("error: RPC failed; curl 56 Recv failure: Connection reset by peer\nfatal: early EOF", Cause.OUTAGE),
    ("kex_exchange_identification: Connection closed by remote host", Cause.OUTAGE),
    ("fatal: unable to access 'https://h/': Maximum (20) redirects followed", Cause.LOGIN_PAGE),
    ("fatal: invalid object type\nfatal: the remote end hung up unexpectedly", Cause.DAMAGED),
    ("unpacker error", Cause.OWN_CLONE),
    ("fatal: unable to read 1d6c4c1ff5d3b7a0e1c2d3e4f5061728394a5b6c", Cause.OWN_CLONE),
    ("error: RPC failed; HTTP 413 curl 22 The requested URL returned error: 413", Cause.FULL),
    ("error: unable to write file: No space left on device", Cause.FULL),
    ("fatal: unable to access 'https://h/': Could not resolve host: h", Cause.UNREACHABLE),
    ("ssh: connect to host h port 22: Connection timed out\nfatal: Could not read from remote", Cause.UNREACHABLE),
    ("fatal: unable to access 'https://h/': Failed to connect to h port 443 after 2 ms", Cause.UNREACHABLE),
    ("fatal: unable to access 'https://h/': GnuTLS recv error (-110): not properly terminated", Cause.OUTAGE),
    ("fatal: protocol error: bad line length character: Welc", Cause.UNKNOWN),
]


@pytest.mark.parametrize(("words", "cause"), WORDS)
def test_words_of_a_server_have_their_cause(words, cause):
    assert cause_of(words) is cause


def test_only_what_passes_is_worth_another_try_and_only_a_refusal_another_branch():
    assert {cause for cause in Cause if cause.is_brief} == {Cause.RATE, Cause.OUTAGE}
    assert {cause for cause in Cause if cause.is_passing} == {Cause.RATE, Cause.OUTAGE, Cause.UNREACHABLE}
    assert {cause for cause in Cause if cause.is_refusal} == {Cause.RIGHTS, Cause.RULE}


@pytest.mark.parametrize("cause", Cause)
def test_each_cause_has_a_remedy_and_a_command_in_it_can_be_pasted(cause):
    remedy = remedy_of(cause, "https://host/a b.git")
    assert "{}" not in remedy
    assert "ROUTE" not in remedy
    assert "git ls-remote" not in remedy or "'https://host/a b.git'" in remedy


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause not in {Cause.OUTAGE, Cause.UNREACHABLE}])
def test_after_a_refused_push_nobody_is_told_to_look_which_works(cause):
    assert "git ls-remote" not in remedy_of(cause, "https://host/a.git", is_push=True)
