"""Why a call to a remote failed, read out of what git and the server wrote: the cause, and what to do about it.

The table holds words of real servers. A cause is a guess by words, so it chooses a remedy and whether to try again,
never whether something was done. Knows nothing about refs, buses or requests.
"""

from __future__ import annotations

import re
import shlex
from enum import StrEnum
from typing import Final

from bridge.errors import RemoteError, RemoteRefusedError
from bridge.system.git import Finished, last_words


class Cause(StrEnum):
    """What stands behind a failed call to a remote."""

    SIGNATURE = "a rule about signatures"
    IDENTITY = "a rule about who commits"
    MESSAGE = "a rule about commit messages"
    RATE = "a rate limit"
    OUTAGE = "an outage"
    UNREACHABLE = "no way there"
    LOGIN_PAGE = "a login page"
    OWN_CLONE = "this clone lacks objects"
    RULE = "a rule of the remote"
    RIGHTS = "missing rights"
    NO_REPOSITORY = "no repository there"
    OWNER = "a folder of another user"
    FULL = "no space there"
    DAMAGED = "a damaged object there"
    UNKNOWN = "not told"

    @property
    def is_passing(self) -> bool:
        """Whether the same call may work later without anybody doing anything."""
        return self.is_brief or self is Cause.UNREACHABLE

    @property
    def is_brief(self) -> bool:
        """Whether it may work within seconds, so that it is tried again at once."""
        return self in {Cause.RATE, Cause.OUTAGE}

    @property
    def is_refusal(self) -> bool:
        """Whether the remote took a look at who pushes what, and said no."""
        return self in {Cause.RIGHTS, Cause.RULE}


# The first that fits counts: a hook that speaks of signatures is a hook, too.
_WORDS: Final[dict[Cause, tuple[str, ...]]] = {
    Cause.DAMAGED: ("invalid object type",),  # git then lists no ref of the repository at all
    Cause.OWNER: ("dubious ownership",),
    Cause.SIGNATURE: (
        "verified signature",  # GitHub GH013, GitLab and Bitbucket push rules
        "must (have|be) (a )?(valid |gpg |ssh )?sign",
        "not signed",
        "unsigned commit",
    ),
    Cause.IDENTITY: (
        "cannot push commits for",  # GitLab
        "committer",  # Bitbucket, Gerrit "does not match your user account"
        "author('s)? e?-?mail",
        "e-?mail address",
        "invalid author",
    ),
    Cause.MESSAGE: ("commit message", "message (does not|must|should)", "issue key", "ticket", "jira"),
    Cause.RATE: ("(error:|HTTP) 429", "rate limit", "too many (requests|connections)"),
    Cause.LOGIN_PAGE: (r"maximum \(\d+\) redirects", "unable to update url base from redir"),
    Cause.OWN_CLONE: (
        "unable to read [0-9a-f]{40}",
        "unpacker error",
        "unpack failed",
        "missing (tree|blob|commit|necessary objects)",
        "did not send all necessary objects",
        "shallow update not allowed",
        "promisor remote",
    ),
    Cause.FULL: ("no space left", "disk quota", "quota exceeded", "(error:|HTTP) 413", "size limit"),
    Cause.RULE: (
        "hook declined",
        "pre-receive",
        r"GH0\d\d",
        "GL-HOOK-ERR",
        "protected branch",
        "hidden ref",  # git's receive.hideRefs
        r"TF4\d{5}|VS4\d",  # Azure DevOps
        "prohibited by gerrit",
        "deletion prohibited",  # git's receive.denyDeletes
        "rule violation",
        "repository rule",
        "not allowed to (create|push|update)",
    ),
    Cause.RIGHTS: (
        "(error:|HTTP) 40[134]",
        "authentication failed",
        "permission denied",
        "permission to .* denied",
        "access denied",
        "denied by",  # gitolite
        "could not read (username|password)",
        "repository not found",
        "not authorized",
        "host key verification failed",
        "insufficient permission",
    ),
    Cause.NO_REPOSITORY: ("does not appear to be a git repository",),
    Cause.OUTAGE: (
        r"(error:|HTTP) 5\d\d",
        "curl (18|52|55|56|92) ",
        "empty reply from server",
        "reset by peer",
        "early EOF",
        "hung up unexpectedly",
        "unexpected disconnect",
        "connection closed by",
        "kex_exchange_identification",
        "gnutls recv error",
        "ssl_error_syscall",
    ),
    Cause.UNREACHABLE: (
        "could not resolve (host|proxy)",
        "name or service not known",
        "temporary failure in name resolution",
        "failed to connect to",
        "connection refused",
        "(connection|operation) timed out",
        "network is unreachable",
        "no route to host",
    ),
}
_OWNED = re.compile(r"dubious ownership in repository at '(.+)'")
_TABLE: Final = tuple((cause, re.compile("|".join(words), re.IGNORECASE)) for cause, words in _WORDS.items())
_HASHES = re.compile(r"mismatched algorithms|does not support this repository's hash algorithm", re.IGNORECASE)
_FINAL: Final = frozenset({Cause.RIGHTS, Cause.NO_REPOSITORY, Cause.LOGIN_PAGE, Cause.OWNER})
IDENTITY_SETTING: Final = (
    "commits of a bus are made by 'Kakeya <kakeya@localhost>' unless a setting says otherwise: "
    "kakeya-mac init --commit-as 'NAME <ADDRESS>' here, [identity] in policy.toml on a host"
)
MESSAGE_SETTING: Final = (
    "put before each message what that rule looks for: kakeya-mac init --message-prefix TEXT here, [identity] in "
    "policy.toml on a host"
)
_REMEDIES: Final = {
    Cause.SIGNATURE: "ask who keeps the remote to leave the branches of requests and the refs of the bus out of it",
    Cause.IDENTITY: IDENTITY_SETTING,
    Cause.MESSAGE: MESSAGE_SETTING,
    Cause.RATE: "wait some minutes, then repeat it: the same command goes on with what it began",
    Cause.LOGIN_PAGE: "sign in, or leave the network's portal: a page for people answers in the place of git",
    Cause.OWN_CLONE: "this clone lacks some of what it sends, as partial and shallow ones do: git fetch --refetch, or "
    "git fetch --unshallow, then repeat",
    Cause.DAMAGED: "git fsck in that repository names the damaged object: remove its file below objects/; then on a "
    "host of the bus: kakeya-runner bus repair --yes",
    Cause.OWNER: "if you trust what is in it, where that folder is: git config --global --add safe.directory {}",
    Cause.FULL: "ask who keeps the remote for space or a higher limit (a quota, a full disk), then repeat",
    Cause.RULE: "ask who keeps the remote to lift what refuses it (a hook, a rule), then repeat",
    Cause.RIGHTS: "whoever keeps the remote must give this account the right to; how git gets in there: "
    "git ls-remote {}",
    Cause.NO_REPOSITORY: "correct the route, or make an empty repository there: git init --bare FOLDER",
    Cause.OUTAGE: "repeat it a little later: the same command goes on with what it began; is it up? git ls-remote {}",
    Cause.UNREACHABLE: "check the network and the route: git ls-remote {}",
    Cause.UNKNOWN: "check the network, the route and the credentials: git ls-remote {}",
}
# Where a push is refused, looking works: that it does would tell nobody anything.
_REMEDIES_OF_PUSHES: Final = {
    Cause.RIGHTS: "whoever keeps the remote must give this account the right to push there; an agent that may push "
    "below one prefix only: work on a branch of that prefix",
    Cause.UNKNOWN: "ask who keeps the remote what refuses it (rights, a rule, a proxy on the way), then repeat",
}


def cause_of(words: str) -> Cause:
    """Return the cause that words of git or of a server name."""
    return next((cause for cause, pattern in _TABLE if pattern.search(words)), Cause.UNKNOWN)


def remedy_of(cause: Cause, route: str, *, is_push: bool = False) -> str:
    """Return what to do about a cause.

    Args:
        cause: of the failure.
        route: of the remote, with no secret of its URL.
        is_push: whether it was a push that failed.
    """
    remedies = _REMEDIES | _REMEDIES_OF_PUSHES if is_push else _REMEDIES
    return remedies[cause].replace("{}", shlex.quote(route))


def explain(finished: Finished, what: str, route: str = "ROUTE", *, is_push: bool = False) -> RemoteError:
    """Return the error of a call to a remote: what was tried, and git's own last words without user information.

    Args:
        finished: the call.
        what: was tried.
        route: of the remote, with no secret of its URL, for the command that tries it alone.
        is_push: whether it was a push.
    """
    if finished.timed_out:
        cause = Cause.UNREACHABLE
        words = f"{what}: no answer within the time limit"
        return RemoteError(words, remedy="check the connection to the remote", cause=cause, is_passing=True)
    if _HASHES.search(finished.stderr):
        return RemoteRefusedError(
            f"{what}: the repository there names its objects by SHA-256, a bus by SHA-1",
            remedy="use one that was made without --object-format=sha256",
        )
    cause = cause_of(finished.stderr)
    kind = RemoteRefusedError if cause in _FINAL else RemoteError
    words = f"{what}: git ended with {finished.exit_code}: {last_words(finished.stderr)}"
    owned = _OWNED.search(finished.stderr)  # of a folder with a work tree it is the .git in it
    remedy = remedy_of(cause, route if owned is None else owned[1], is_push=is_push)
    return kind(words, remedy=remedy, cause=cause, is_passing=cause.is_passing)
