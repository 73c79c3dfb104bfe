"""Completion scripts for bash, zsh and fish, made from the table of commands.

Preset names and run ids are completed from files at the moment of completion: the scripts read the package's preset
folder and the state folder, where what the bus offered last is written down, so pressing Tab starts no Python.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bridge.cli.table.command import Argument, Verb
from bridge.cli.table.commands import COMMANDS, PROGRAM


def script(shell: str) -> str:
    """Return the script for a shell: ``bash``, ``zsh`` or ``fish``."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]()


def _preset_folder() -> str:
    import bridge

    return str(Path(bridge.__file__).parent / "presets")


_MAC: Final = "Library/Application Support"


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
}}"""


def _bash() -> str:
    cases = "\n".join(_bash_case(command) for command in COMMANDS)
    firsts = " ".join(dict.fromkeys(command.name.split()[0] for command in COMMANDS))
    seconds = "\n".join(f"    {first}) words='{words}' ;;" for first, words in _second_words().items())
    return f"""# bash completion for {PROGRAM}; use: eval "$({PROGRAM} completion bash)"
{_dynamic()}
_kakeya_mac() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}" command="${{COMP_WORDS[1]}}" words=''
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W '{firsts}' -- "$cur")); return
  fi
  if [ "$COMP_CWORD" -eq 2 ]; then
    case "$command" in
{seconds}
    esac
    [ -n "$words" ] && COMPREPLY=($(compgen -W "$words" -- "$cur"))
  fi
  case "$command ${{COMP_WORDS[2]}}" in
    {_two_word_pattern()}) command="$command ${{COMP_WORDS[2]}}" ;;
  esac
  case "$command" in
{cases}
  esac
}}
complete -o default -F _kakeya_mac {PROGRAM}
"""


def _bash_case(command: Verb) -> str:
    options = " ".join(name for argument in command.arguments if not argument.positional for name in argument.names)
    lines = [f"    '{command.name}')"]
    choosers = [argument for argument in command.arguments if argument.choices and not argument.positional]
    if choosers:
        lines.append('      case "$prev" in')
        for argument in choosers:
            names = "|".join(argument.names)
            lines.append(
                f"        {names}) COMPREPLY=($(compgen -W '{' '.join(argument.choices)}' -- \"$cur\")); return ;;"
            )
        lines.append("      esac")
    lines.append(f'      case "$cur" in -*) COMPREPLY=($(compgen -W \'{options} --help\' -- "$cur")); return ;; esac')
    source = next(
        (found for argument in command.arguments if argument.positional and (found := _source(argument))), None
    )
    if source is not None:
        lines.append(f'      COMPREPLY+=($(compgen -W "{source}" -- "$cur"))')
    lines.append("      ;;")
    return "\n".join(lines)


def _source(argument: Argument) -> str | None:
    """Return the words of a positional as shell text, None where files are the answer."""
    if argument.choices:
        return " ".join(argument.choices)
    return {"preset": "$(_kakeya_presets)", "run": "$(_kakeya_runs)"}.get(argument.complete)


def _second_words() -> dict[str, str]:
    words: dict[str, list[str]] = {}
    for command in COMMANDS:
        first, _, second = command.name.partition(" ")
        if second:
            words.setdefault(first, []).append(second)
    return {first: " ".join(seconds) for first, seconds in words.items()}


def _two_word_pattern() -> str:
    return "|".join(f"'{command.name}'" for command in COMMANDS if " " in command.name)


def _zsh() -> str:
    described = "\n".join(f"    {shlex.quote(f'{first}:{text}')}" for first, text in _first_words().items())
    cases = "\n".join(_zsh_case(command) for command in COMMANDS if " " not in command.name)
    groups = "\n".join(_zsh_group(first, seconds) for first, seconds in _second_words().items())
    return f"""#compdef {PROGRAM}
# zsh completion for {PROGRAM}; use: eval "$({PROGRAM} completion zsh)"
{_dynamic()}
_kakeya_mac() {{
  local -a commands
  commands=(
{described}
  )
  if (( CURRENT == 2 )); then _describe 'command' commands; return; fi
  local command="$words[2]"
  case "$command" in
{groups}
  esac
  shift words; (( CURRENT-- ))
  case "$command" in
{cases}
  esac
}}
(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit; }}
compdef _kakeya_mac {PROGRAM}
"""


def _first_words() -> dict[str, str]:
    found: dict[str, str] = {}
    for command in COMMANDS:
        first = command.name.split()[0]
        if first not in found:
            found[first] = command.summary if command.name == first else f"{first} …"
    return found


def _zsh_group(first: str, seconds: str) -> str:
    rest = [command for command in COMMANDS if command.name.startswith(f"{first} ")]
    inner = "\n".join(_zsh_case(command, word=command.name.split()[1], indent="          ") for command in rest)
    return f"""    {first})
      if (( CURRENT == 3 )); then compadd -- {seconds}; fi
      local second="$words[3]"
      if (( CURRENT > 3 )) && [[ " {seconds} " == *" $second "* ]]; then
        shift 2 words; (( CURRENT -= 2 ))
        case "$second" in
{inner}
        esac
        return
      fi ;;"""


def _zsh_case(command: Verb, word: str | None = None, indent: str = "    ") -> str:
    positional = [argument for argument in command.arguments if argument.positional]
    places = {argument.dest: number for number, argument in enumerate(positional, 1)}
    specs = " ".join(shlex.quote(_zsh_spec(argument, places)) for argument in command.arguments)
    return f"{indent}{word or command.name}) _arguments {specs} ;;"


def _zsh_spec(argument: Argument, places: Mapping[str, int]) -> str:
    text = argument.help.replace("[", "(").replace("]", ")").replace(":", ";").replace("'", "")
    if argument.choices:
        action = f"({' '.join(argument.choices)})"
    else:
        action = {"preset": "($(_kakeya_presets))", "run": "($(_kakeya_runs))", "path": "_files"}.get(
            argument.complete, ""
        )
    if argument.positional:
        head = "*" if argument.kind == "many" else str(places[argument.dest])
        return f"{head}:{argument.dest}:{action}"
    name = max(argument.names, key=len)
    if argument.kind == "flag":
        return f"{name}[{text}]"
    star = "*" if argument.kind == "repeat" else ""
    return f"{star}{name}[{text}]:{argument.dest}:{action}"


def _fish() -> str:
    firsts = _first_words()
    none = f"not __fish_seen_subcommand_from {' '.join(firsts)}"
    lines = [f"# fish completion for {PROGRAM}; use: {PROGRAM} completion fish | source"]
    lines += [
        "function __kakeya_state",
        "  set -l d (git rev-parse --git-common-dir 2>/dev/null); and echo $d/kakeya; and return",
        "  set -q KAKEYA_DATA_DIR; and echo $KAKEYA_DATA_DIR; and return",
        f"  {_fish_user_folder()}",
        "end",
        "function __kakeya_presets",
        "  set -l o (__kakeya_state)/offered; test -f $o; and cat $o",
        f"  for f in {shlex.quote(_preset_folder())}/*.toml; basename $f .toml; end",
        "end",
        "function __kakeya_runs",
        "  echo @last",
        "  set -l d (__kakeya_state)/requests",
        "  test -d $d; and ls -r $d | string replace .json '' | head -n 30",
        "end",
        f"complete -c {PROGRAM} -f",
    ]
    lines += [f"complete -c {PROGRAM} -n '{none}' -a {first} -d {shlex.quote(text)}" for first, text in firsts.items()]
    lines += [
        f"complete -c {PROGRAM} -n '__fish_seen_subcommand_from {first}' -a '{seconds}'"
        for first, seconds in _second_words().items()
    ]
    for command in COMMANDS:
        lines += [_fish_line(command, argument) for argument in command.arguments]
    return "\n".join(line for line in lines if line) + "\n"


def _fish_line(command: Verb, argument: Argument) -> str:
    condition = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in command.name.split())
    head = f"complete -c {PROGRAM} -n '{condition}'"
    source = " ".join(argument.choices) or {"preset": "(__kakeya_presets)", "run": "(__kakeya_runs)"}.get(
        argument.complete, ""
    )
    if argument.positional:
        files = " -F" if argument.complete == "path" else ""
        return f"{head} -a '{source}'{files}" if source or files else ""
    names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in argument.names)
    takes = "" if argument.kind == "flag" else " -x"
    offered = f" -a '{source}'" if source else ""
    return f"{head} {names}{takes}{offered} -d {shlex.quote(argument.help)}"
