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

from bridge.cli.table.command import Argument, Verb
from bridge.cli.table.commands import MAC

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
        action = parser.add_argument(*argument.names, **_keywords(argument))
        if argument.complete in _FUNCTIONS:
            action.complete = _FUNCTIONS[argument.complete]  # type: ignore[attr-defined]


def _keywords(argument: Argument) -> dict[str, Any]:
    words: dict[str, Any] = {"help": _plain(argument.help)}
    if argument.kind == "flag":
        return words | {"action": "store_true"}
    if argument.choices:
        words["choices"] = argument.choices
    if argument.positional and argument.kind in {"optional", "many"}:
        words["nargs"] = "?" if argument.kind == "optional" else "*"
    return words


def _plain(text: str) -> str:
    """Return a help text without what shells and argparse read in one."""
    return text.replace("%", "%%").replace("'", "").replace("`", "").replace(":", ",")


_FUNCTIONS: Final[dict[str, dict[str, str]]] = {
    what: {"bash": f"_kakeya_{name}_bash", "zsh": f"_kakeya_{name}_zsh", "fish": f"(_kakeya_{name})"}
    for what, name in (("preset", "presets"), ("run", "runs"), ("ref", "refs"))
} | {"path": {"bash": "_shtab_compgen_files", "zsh": "_files", "fish": ""}}


def _preamble(shell: str) -> str:
    """Return the functions that the script calls, for its shell."""
    if shell == "fish":
        return _fish()
    names = ("presets", "runs", "refs")
    if shell == "bash":
        own = "\n".join(f'_kakeya_{name}_bash() {{ compgen -W "$(_kakeya_{name})" -- "$1"; }}' for name in names)
    else:
        own = "\n".join(f'_kakeya_{name}_zsh() {{ compadd -- ${{(f)"$(_kakeya_{name})"}}; }}' for name in names)
    return f"{_dynamic()}\n{own}"


def _preset_folder() -> str:
    import bridge

    return str(Path(bridge.__file__).parent / "presets")


def _user_folder() -> str:
    """Return where requests and offers are remembered outside of a clone, as shell text; what platformdirs says."""
    return f"$HOME/{_MAC}/kakeya" if sys.platform == "darwin" else "${XDG_DATA_HOME:-$HOME/.local/share}/kakeya"


def _fish_user_folder() -> str:
    """Return lines of fish that print the same."""
    if sys.platform == "darwin":
        return f'echo "$HOME/{_MAC}/kakeya"'
    return "set -q XDG_DATA_HOME; and echo $XDG_DATA_HOME/kakeya; or echo $HOME/.local/share/kakeya"


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


def _fish() -> str:
    """Return the same functions in fish."""
    return "\n".join(
        [
            "function _kakeya_state",
            "  set -l d (git rev-parse --git-common-dir 2>/dev/null); and echo $d/kakeya; and return",
            "  set -q KAKEYA_DATA_DIR; and echo $KAKEYA_DATA_DIR; and return",
            f"  {_fish_user_folder()}",
            "end",
            "function _kakeya_presets",
            "  set -l o (_kakeya_state)/offered; test -f $o; and cat $o",
            f"  for f in {shlex.quote(_preset_folder())}/*.toml; basename $f .toml; end",
            "end",
            "function _kakeya_runs",
            "  echo @last",
            "  set -l d (_kakeya_state)/requests",
            "  test -d $d; and ls -r $d | string replace .json '' | head -n 30",
            "end",
            f"function _kakeya_refs; {_REFS}; end",
        ]
    )
