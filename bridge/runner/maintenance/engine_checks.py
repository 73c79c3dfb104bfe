"""Check what a cluster needs of this runner: an engine that answers, a folder its nodes share, their sandboxes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Final

from bridge.diagnostics import Check, Level
from bridge.errors import InfrastructureError
from bridge.executor.engines.interface import ClusterEngine
from bridge.executor.engines.probe import FolderFinding, NodeQuestion, ask_node
from bridge.system.clock import Clock
from bridge.system.tasks import called

PATIENCE_S: Final = 120.0
_CLOSE: Final = 'RAY_AUTH_MODE=token for Ray and token_file in [executor]; or sandbox.network = "internet" at most'
_CONFINE: Final = "install bubblewrap on the nodes and allow user namespaces there"
_SHARE: Final = "give --state a folder that every node has at the same path, of the same user, with locks"


def check_engine(
    engine: ClusterEngine,
    state: Path,
    python: str,
    clock: Clock,
    patience_s: float = PATIENCE_S,
    *,
    networked: tuple[str, ...] = (),
    question: NodeQuestion | None = None,
    required: bool = True,
    labels: tuple[str, ...] = (),
) -> Iterator[Check]:
    """Yield whether the engine answers, what it does not hold together, and what nodes see of the state folder.

    A node of each label is asked beside one without: a partition may mount another folder, or confine nothing.

    Args:
        engine: where runs go.
        state: the runner's state folder.
        python: the interpreter that a node starts.
        clock: the machine's clocks.
        patience_s: how long a node may take to answer.
        networked: presets whose runs reach the network of their host here.
        question: what a node is asked of its sandbox; None: whether it has one at all.
        required: whether the policy takes no run without one.
        labels: those that mean something to the engine.
    """
    name = engine.name
    try:
        loose, open_to = engine.check(), engine.open_to_runs() if networked else None
    except InfrastructureError as error:
        yield Check(name, "fail", error.message, error.remedy)
        return
    if loose is None:
        yield Check(name, "ok", "answers, and holds the processes of a job together")
    else:
        yield Check(name, "ok", f"answers; {loose}: runs without a sandbox are refused")
    if open_to is not None:
        yield Check(
            name,
            "fail",
            f"runs of {', '.join(networked)} are refused, because they reach the network of their host: {open_to}",
            _CLOSE,
        )
    if os.geteuid() == 0:
        yield Check(name, "fail", "this runner is root, and its jobs would be", "run it as a user of its own")
        return

    def argv(folder: Path) -> tuple[str, ...]:
        return (python, "-I", "-m", "bridge.cli.host.main", "supervise", "--probe", str(folder))

    def ask(label: str) -> FolderFinding:
        job_labels = (label,) if label else ()
        return ask_node(engine, state, argv, clock, patience_s=patience_s, question=question, labels=job_labels)

    # All at once: a label whose nodes are all busy keeps the others waiting for nothing.
    answers = {label: called(partial(ask, label)) for label in ("", *labels)}
    for label, answer in answers.items():
        yield from _node_checks(label, state, answer, required=required)


def _node_checks(label: str, state: Path, answer: Future[FolderFinding], *, required: bool) -> Iterator[Check]:
    """Yield what a node of a label, empty for any node, sees of the state folder, and whether it has a sandbox."""
    under = f" under the label {label}" if label else ""
    try:
        found = answer.result()
    except InfrastructureError as error:
        # Nodes of a label may be busy for hours, which says nothing against them.
        level: Level = "warn" if label else "fail"
        yield Check("shared folder", level, f"{state}{under}: {error.message}", error.remedy or _SHARE)
        return
    except OSError as error:
        yield Check("shared folder", "fail", f"{state}{under}: {error.strerror}", _SHARE)
        return
    wrong, node = found.problems(), f"node {found.answer.node}{under}"
    where = f"{state} on {node}, {found.waited_s:.0f} s after it was asked"
    if wrong:
        yield Check("shared folder", "fail", f"{where}: {'; '.join(wrong)}", _SHARE)
    else:
        yield Check("shared folder", "ok", f"written here, read there, and back: {where}")
    applied = found.answer.sandbox
    if applied.kind != "none":
        yield Check("sandbox", "ok", f"{applied.kind} on {node}")
    else:
        text = f"none on {node}: {applied.reason or 'unknown'}"
        yield Check("sandbox", "fail" if required else "warn", text, _CONFINE)
