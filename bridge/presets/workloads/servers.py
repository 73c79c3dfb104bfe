"""Inference servers as a workload: the commands that hold and ask them, what they are made of, what is claimed of them.

Knows the table of `workload.toml`; how servers are started and asked is elsewhere.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from bridge.launches.stopping import MODELS
from bridge.presets.model import CommandTemplate, SeriesTemplate
from bridge.presets.parameters import ChoiceParameter
from bridge.presets.workloads.file import ServersTable, ServerTable
from bridge.records.turns import LaunchSeries, StopRule
from bridge.records.workload import MetricDefinition, ServersDefinition

Mistake = tuple[tuple[str, ...], str, str]
ARMS: Final = ("baseline", "candidate")
COMMAND: Final = "answer_speedup"
STREAMS: Final = "streams"
PYTHON: Final = "{python}"
PORT: Final = "@PORT@"
_PLACEHOLDER: Final = re.compile(r"\{[^{}]*\}")
_KNOWN: Final = frozenset({PYTHON, "{port}", "{folder}"})
_SEEN: Final = ("inputs", "outputs")


def holder() -> Path:
    """Return the program that holds servers in a sandbox; it needs the standard library only."""
    return Path(str(files("bridge.launches") / "hold_servers.py"))


def asker() -> Path:
    """Return the program that asks servers from beside a sandbox; it needs the standard library only."""
    return Path(str(files("bridge.launches") / "ask_servers.py"))


def server_words(table: ServerTable, folder: Path, python: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command line of a server, its port left open; empty where it runs already.

    Args:
        table: of the server.
        folder: of the workload.
        python: what `{python}` stands for.
    """
    words: list[str] = []
    for place, word in enumerate(table.command or ()):
        if word == PYTHON:
            words += python
        elif place == 0 and not word.startswith("{"):
            path = os.path.normpath(folder / word)
            words += (*python, path) if path.endswith(".py") else (path,)
        else:
            words.append(word.replace("{port}", PORT).replace("{folder}", str(folder)))
    return tuple(words)


def servers_command(servers: ServersTable, folder: Path, python: tuple[str, ...]) -> CommandTemplate:
    """Return the command that holds the servers, with who asks them and how often they are started."""
    rule = StopRule(least=MODELS.least, most=MODELS.most)
    series = LaunchSeries(arms=ARMS, rule=rule, unit="samples", solo_s=0.0)
    argv = ["${interpreter}", "-I", "-S", str(holder())]
    for arm, table in servers.sides.items():
        if table.command is not None:
            argv += [f"--@{arm}", *server_words(table, folder, python)]
    return CommandTemplate(
        name=COMMAND,
        argv=tuple(argv),
        launches=SeriesTemplate(smoke=series, claim=series),
        asker=(
            "${interpreter}",
            "-I",
            "-S",
            str(asker()),
            str(folder),
            f"{{{STREAMS}}}",
            *target_words(servers, folder),
        ),
    )


def target_words(servers: ServersTable, folder: Path) -> tuple[str, ...]:
    """Return the command of the host's own engine that continues prompts; empty where no target is named."""
    if servers.target is None:
        return ()
    return ("${host_engine}", "eval", "continue", "--target", os.path.normpath(folder / servers.target))


def streams_parameter(servers: ServersTable) -> ChoiceParameter:
    """Return the parameter that says how many requests are sent at once."""
    choices = tuple(str(count) for count in servers.streams)
    return ChoiceParameter(type="choice", choices=choices, default=choices[0], help="requests sent at once")


def servers_definition(servers: ServersTable) -> ServersDefinition:
    """Return what the gate has to know of the servers."""
    return ServersDefinition(
        sides=tuple(servers.sides),
        same_weights=servers.same_weights,
        endpoint=any(table.endpoint is not None for table in servers.sides.values()),
        tokenizer=servers.tokenizer,
        target=servers.target,
    )


def servers_metrics(servers: ServersTable) -> Iterator[MetricDefinition]:
    """Yield what is claimed of them: first how much faster one is, or of one alone how soon it begins."""
    if len(servers.sides) == len(ARMS):
        yield MetricDefinition(name=COMMAND, aggregate="ratio", unit="ratio", better="higher", premises=_SEEN)
        if servers.same_weights:
            yield MetricDefinition(name="same_answers", aggregate="share", unit="share", premises=_SEEN)
    counted = "character" if servers.tokenizer is None else "token"
    for side in servers.sides:
        for name in ("first_token", counted, "answer"):
            yield MetricDefinition(
                name=f"{side}_{name}", aggregate="percentiles", unit="s", better="lower", premises=("times", *_SEEN)
            )
        rate = MetricDefinition(
            name=f"{side}_rate", aggregate="percentiles", unit=f"{counted}s/s", better="higher",
            premises=("times", *_SEEN),
        )  # fmt: skip
        yield rate
        yield rate.evolve(name=f"{side}_memory", unit="bytes", better="lower")


def server_problems(servers: ServersTable, folder: Path) -> Iterator[Mistake]:
    """Yield what is wrong with the servers: programs, files and addresses that are not there."""
    for side, table in servers.sides.items():
        where = ("servers", side)
        if table.endpoint is not None:
            url = urlsplit(table.endpoint)
            if (
                url.scheme != "http"
                or url.hostname not in {"127.0.0.1", "localhost", "::1"}
                or not _port(table.endpoint)
            ):
                problem = f"servers.{side}.endpoint is {table.endpoint!r}; only this machine's loopback is asked"
                yield (*where, "endpoint"), problem, 'write e.g. endpoint = "http://127.0.0.1:8080"'
            continue
        words = table.command or ()
        unknown = sorted({token for word in words for token in _PLACEHOLDER.findall(word)} - _KNOWN)
        if unknown:
            problem = f"servers.{side}.command says {unknown[0]}, which stands for nothing"
            yield (*where, "command"), problem, f"use {', '.join(sorted(_KNOWN))}"
        if not any("{port}" in word for word in words):
            problem = f"servers.{side}.command has no {{port}}: nobody would know where it listens"
            yield (*where, "command"), problem, 'e.g. "--port", "{port}"'
        path = Path(os.path.normpath(folder / words[0]))
        if words[0] != PYTHON and not path.is_file():
            near = difflib.get_close_matches(words[0], [entry.name for entry in folder.iterdir()], n=1)
            problem = f"program {words[0]!r} is not there"
            remedy = f"did you mean {near[0]}?" if near else f"put it in {folder}, or write its absolute path"
            yield (*where, "command"), problem, remedy
        elif words[0] != PYTHON and path.suffix != ".py" and not os.access(path, os.X_OK):
            yield (*where, "command"), f"program {words[0]!r} may not be executed", f"chmod +x {shlex.quote(str(path))}"
    for number, name in enumerate(servers.files):
        if not (folder / name).exists():
            problem = f"servers.files[{number}] is {name!r}, which is not there"
            yield ("servers", "files"), problem, "name the model's folder, absolute or from the workload's folder"
    if servers.target is not None and not (folder / servers.target / "config.json").is_file():
        problem = f"servers.target is {servers.target!r}, which has no config.json"
        yield ("servers", "target"), problem, "name a folder that kakeya-engine inspect reads, or leave it out"
    if servers.tokenizer is not None and not (folder / servers.tokenizer / "tokenizer.json").is_file():
        problem = f"servers.tokenizer is {servers.tokenizer!r}, which has no tokenizer.json"
        yield ("servers", "tokenizer"), problem, "name the model's folder, or leave it out: characters are counted then"


def _port(url: str) -> int | None:
    try:
        return urlsplit(url).port
    except ValueError:
        return None
