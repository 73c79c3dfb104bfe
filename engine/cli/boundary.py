"""The one place where an engine error becomes an exit code."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable

from engine.errors import EngineError

INTERRUPTED = 130
"""Exit code of a process that SIGINT ended, as a shell reports it."""
CLOSED_PIPE = 141
"""The same for SIGPIPE."""
LINE_CHARS = 500
OUT_OF_MEMORY = re.compile(r"unable to allocate|out of memory|can't allocate|malloc", re.IGNORECASE)
"""What MLX and torch write where an array does not fit; neither has a class for it on every device."""


def guarded(run: Callable[[], int]) -> int:
    """Run a verb; an engine error, the system's refusal, an interruption and a closed pipe become an exit code."""
    try:
        try:
            return run()
        finally:
            # What is left in the buffer must meet a closed pipe or a full disk here, not when Python ends.
            print(end="", flush=True)
    except EngineError as error:
        _say(error)
        return error.exit_code
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read the answer has enough; without this, Python complains again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_PIPE
    except OSError as error:
        _say(error)
        return EngineError.exit_code
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and OUT_OF_MEMORY.search(str(error)) is None:
            raise
        _say(EngineError(f"not enough memory: {error}. Use a smaller model, a shorter prompt or --cache affine8"))
        return EngineError.exit_code


def _say(error: Exception) -> None:
    """Print an error as one line; what an array library says may be a list of every tensor, what a server says more."""
    text = "".join(character if character.isprintable() else "?" for character in " ".join(str(error).split()))
    print(f"error: {text if len(text) <= LINE_CHARS else text[:LINE_CHARS] + '…'}", file=sys.stderr)
