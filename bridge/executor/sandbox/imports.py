"""Ask where a command's module would come from: the same interpreter and flags, the same confinement, before it runs.

The answer is the runner's own: nothing of the run's tree is executed, only looked for. Knows nothing about who may
run what.
"""

from __future__ import annotations

import ast
from typing import Final

from bridge.limits import KIB, TEXT_MAX_CHARS
from bridge.records import Command, ImportedModule

ANSWER_MAX_BYTES: Final = 16 * KIB
# Only modules the interpreter has loaded by itself are used: a tree may hold a `json.py` of its own. Finders are asked
# in the order an import asks them. The folder that `-m` puts first is the one that `-c` puts first.
_PROGRAM: Final = """
import sys
os = sys.modules["os"]
found = None
for finder in sys.meta_path:
    spec = finder.find_spec(sys.argv[1], None)
    if spec is not None:
        found = spec.origin if spec.has_location else next(iter(spec.submodule_search_locations or ()), None)
        break
print(ascii((found and os.path.realpath(found), os.path.realpath(os.getcwd()))))
"""


def question(command: Command) -> tuple[Command, str] | None:
    """Return the command that asks, and the top-level module it asks for; None for one that runs no module.

    Args:
        command: interpreter, its flags, ``-m``, a module, and the module's arguments.
    """
    flags: list[str] = []
    for place, word in enumerate(command.argv[1:], start=1):
        if word == "-m" and place + 1 < len(command.argv):
            module = command.argv[place + 1].partition(".")[0]
            argv = (command.argv[0], *flags, "-c", _PROGRAM, module)
            return Command(name="where-from", argv=argv), module
        if not word.startswith("-") or word == "-c":
            return None
        flags.append(word)
    return None


def answer(module: str, text: bytes) -> ImportedModule | None:
    """Return what the asking command found, or None when it found nothing."""
    try:
        path, work = ast.literal_eval(text.decode("ascii").strip().rpartition("\n")[2])
    except (ValueError, SyntaxError, TypeError):
        return None
    if not (isinstance(path, str) and isinstance(work, str)) or max(len(path), len(work)) > TEXT_MAX_CHARS:
        return None
    shown = path.isprintable() and work.isprintable()
    return ImportedModule(module=module, path=path, work=work) if shown else None
