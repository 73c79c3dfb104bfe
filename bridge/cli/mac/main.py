"""Start `kakeya-mac`: signals first, everything else after, so that Ctrl-C means the same from the first moment on."""

from __future__ import annotations

import gc
import os
import sys

from bridge.cli import front_page

_OBJECTS = 200_000  # new ones before a collection: what is imported makes half of them, and all of it stays


def main(argv: list[str] | None = None) -> int:
    """Run one command of this process and return its exit code."""
    words = sys.argv[1:] if argv is None else argv
    gc.set_threshold(_OBJECTS)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # none is ours, and looking for them takes its time
    if front_page.is_asked(words):
        return front_page.show()
    return _run(words)


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
    sys.exit(main())
