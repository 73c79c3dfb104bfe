"""Start `kakeya-mac`: signals first, everything else after, so that Ctrl-C means the same from the first moment on."""

from __future__ import annotations

import gc
import os
import sys

from bridge.cli import front_page, streams

_OBJECTS = 200_000  # new ones before a collection: what is imported makes half of them, and all of it stays


def main(argv: list[str] | None = None) -> int:
    """Run one command of this process and return its exit code."""
    words = sys.argv[1:] if argv is None else argv
    gc.set_threshold(_OBJECTS)
    if front_page.is_asked(words):
        return front_page.show()
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # none is ours: its search reads every distribution
    return _run(words)


def run_process() -> int:
    """Run the command of this process and return its exit code, which is 3 where what it printed did not arrive."""
    streams.prepare()
    code = main()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        streams.discard_stdout()
        code = code or 3
    gc.freeze()  # what is left ends with the process: no collection looks through it once more
    return code


def _run(words: list[str]) -> int:
    from bridge.cli.signals import DetachedError, install

    install()
    try:
        from bridge.cli.mac import program

        return program.main(words)
    except DetachedError as detached:  # outside of a command: while the program was loaded, or after it had ended
        from bridge.cli.mac import program

        return program.stop(detached, words)


if __name__ == "__main__":
    sys.exit(run_process())
