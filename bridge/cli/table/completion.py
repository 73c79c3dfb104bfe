"""Completion scripts for bash, zsh and fish: shtab's, of a parser that has the table of commands.

Preset names and run ids are completed from files at the moment of completion: the scripts read the package's preset
folder and the state folder, where what the bus offered last is written down, so pressing Tab starts no Python.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any, Final

from bridge.cli.table.command import Verb
from bridge.cli.table.commands import MAC
from bridge.cli.table.parser import add_argument

_MAC: Final = "Library/Application Support"
_REFS: Final = "git for-each-ref --format='%(refname:short)' 2>/dev/null"


def script(shell: str) -> str:
    """Return the script for a shell: ``bash``, ``zsh`` or ``fish``."""
    import shtab

    text: str = shtab.complete(_parser(), shell=shell, preamble=_preamble(shell))
    return text


def _parser() -> argparse.ArgumentParser:
    """Return a parser that is completed and never parses anything: a command of two words is below its first."""
    parser = argparse.ArgumentParser(prog=MAC.name)
    firsts = parser.add_subparsers(dest="command")
    below: dict[str, Any] = {}
    made: dict[str, argparse.ArgumentParser] = {}
    for command in sorted(MAC.verbs, key=lambda verb: " " in verb.name):
        first, _, second = command.name.partition(" ")
        if first not in made:
            made[first] = firsts.add_parser(first, help=_plain(command.summary))
        if second and first not in below:
            below[first] = made[first].add_subparsers(dest="second")
        _fill(below[first].add_parser(second, help=_plain(command.summary)) if second else made[first], command)
    return parser


def _fill(parser: argparse.ArgumentParser, command: Verb) -> None:
    for argument in command.arguments:
        action = add_argument(parser, argument)
        action.help = _plain(argument.help)
        if argument.complete in _FUNCTIONS:
            action.complete = _FUNCTIONS[argument.complete]  # type: ignore[attr-defined]


def _plain(text: str) -> str:
    """Return a help text without what shells and argparse read in one."""
    return text.replace("%", "%%").replace("'", "\u2019").replace("`", "").replace(":", ",")


_FUNCTIONS: Final[dict[str, dict[str, str]]] = {
    what: {"bash": f"_kakeya_{name}_bash", "zsh": f"_kakeya_{name}_zsh", "fish": f"(_kakeya_{name})"}
    for what, name in (("preset", "presets"), ("run", "runs"), ("ref", "refs"))
} | {"path": {"bash": "_shtab_compgen_files", "zsh": "_files", "fish": ""}}


def _preamble(shell: str) -> str:
    """Return the functions that the script calls, for its shell; fish has a POSIX shell run them."""
    own = {
        "bash": '_kakeya_{0}_bash() {{ compgen -W "$(_kakeya_{0})" -- "$1"; }}',
        "zsh": '_kakeya_{0}_zsh() {{ compadd -- ${{(f)"$(_kakeya_{0})"}}; }}',
        "fish": "function _kakeya_{0}; sh -c {1}_kakeya_{0}; end",
    }[shell]
    posix = _dynamic()
    each = [own.format(name, _fish_quoted(f"{posix}\n")) for name in ("presets", "runs", "refs")]
    return "\n".join(each if shell == "fish" else [posix, *each])


def _fish_quoted(text: str) -> str:
    """Return a text as one word of fish, whose single quotes know two escapes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _preset_folder() -> str:
    import bridge

    return str(Path(bridge.__file__).parent / "presets")


def _user_folder() -> str:
    """Return where requests and offers are remembered outside of a clone, as shell text; what platformdirs says."""
    return f"$HOME/{_MAC}/kakeya" if sys.platform == "darwin" else "${XDG_DATA_HOME:-$HOME/.local/share}/kakeya"


def _dynamic() -> str:
    """Return shell functions, POSIX but for `local`, that list presets and known run ids."""
    return f"""_kakeya_state() {{
  local d; d="$(git rev-parse --git-common-dir 2>/dev/null)" && printf '%s' "$d/kakeya" ||
    printf '%s' "${{KAKEYA_DATA_DIR:-{_user_folder()}}}"
}}
_kakeya_presets() {{
  local f
  f="$(_kakeya_state)/offered"; [ -f "$f" ] && cat "$f"
  for f in {shlex.quote(_preset_folder())}/*.toml; do f="${{f##*/}}"; printf '%s\\n' "${{f%.toml}}"; done
}}
_kakeya_runs() {{
  printf '@last\\n'
  local d; d="$(_kakeya_state)/requests"
  [ -d "$d" ] && ls -r "$d" | sed 's/\\.json$//' | head -n 30
}}
_kakeya_refs() {{ {_REFS}; }}"""
