"""The one place where errors become exit codes, the same for both programs."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

from bridge.cli.streams import READER_LEFT, discard_stdout
from bridge.errors import KakeyaError, UsageError, of_system


def guarded(
    act: Callable[[], int], report: Callable[[KakeyaError], object], program: str, talk: Callable[[str], object]
) -> int:
    """Run a command and return its exit code; a bug ends in 70, after its traceback.

    Where stdout's reader has left, the code is not 0: what was to be said may have been that a result was forged.

    Args:
        act: the command.
        report: tells of an error before its code is returned.
        program: whose `doctor` is the remedy where the operating system refused something.
        talk: takes the traceback of a bug.
    """
    try:
        return act()
    except BrokenPipeError:
        discard_stdout()
        return READER_LEFT
    except Exception as error:  # noqa: BLE001 (the one place: a bug still ends in a code and a message)
        if not isinstance(error, KakeyaError | OSError):
            import traceback

            talk(traceback.format_exc().rstrip())
        as_ours = as_known(error, f"{program} doctor")
        try:
            report(as_ours)
        except OSError:  # what refused the answer refuses the error too
            discard_stdout()
        return as_ours.exit_code


def as_known(error: Exception, remedy: str) -> KakeyaError:
    """Return an error with a message for people.

    Args:
        error: what was raised; one of ours is returned as it is.
        remedy: what to do next where the operating system refused something and does not say.
    """
    if isinstance(error, KakeyaError):
        return error
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        chars = len(Path(error.filename or "").name)
        return UsageError(f"got a name of {chars} characters; expected one that a file may have")
    if isinstance(error, OSError):
        return of_system(error, remedy)
    return KakeyaError(f"a bug: {type(error).__name__}: {error}", remedy="please report it with the lines above")
