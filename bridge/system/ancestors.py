"""Find and end processes above us: for a hook that must stop the program that called it.

Knows nothing about why.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import PurePath

import psutil

WAIT_S = 5.0


def ancestor_named(name: str, pid: int | None = None) -> int | None:
    """Return the nearest ancestor whose executable or script is called `name`, None when there is none."""
    try:
        parents = psutil.Process(os.getpid() if pid is None else pid).parents()
    except psutil.NoSuchProcess:
        return None
    for parent in parents:
        try:
            words = [parent.name(), *parent.cmdline()[:2]]
        except psutil.Error:
            continue
        if any(PurePath(word).name == name for word in words):
            return int(parent.pid)
    return None


def kill_tree(pid: int, *, spare: int | None = None) -> int:
    """Kill a process and everything below it but `spare` and what `spare` started; return how many are gone.

    Everybody is stopped first, until a look finds nobody new: nothing is started while the tree is being killed.
    """
    try:
        root = psutil.Process(pid)
    except psutil.NoSuchProcess:
        return 0
    spared = _spared(spare)
    stopped: dict[int, psutil.Process] = {}
    while new := [process for process in _tree(root) if process.pid not in {*spared, *stopped}]:
        for process in new:
            stopped[process.pid] = process
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGSTOP)
    doomed = list(stopped.values())
    for process in doomed:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    gone, _ = psutil.wait_procs(doomed, timeout=WAIT_S)
    return len(gone)


def _tree(root: psutil.Process) -> list[psutil.Process]:
    try:
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return [root]


def _spared(pid: int | None) -> set[int]:
    if pid is None:
        return set()
    try:
        return {pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))}
    except psutil.NoSuchProcess:
        return set()
