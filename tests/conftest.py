"""What every test gets: a git that ignores the machine's configuration, and a way to insist on facilities.

`--require NAME` turns the skip for a missing facility into a failure, for machines that promise it.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.support import importing, order, tiers

os.environ.pop("COLUMNS", None)  # a worker of xdist has it; a line is broken for a screen, and no test has one
hypothesis.settings.register_profile("patient", deadline=None)  # an example's seconds are the machine's
hypothesis.settings.load_profile("patient")
FACILITIES = (
    "actionlint",
    "clients",
    "compiler",
    "cuda",
    "metal",
    "mount",
    "real-models",
    "sandbox",
    "servers",
    "shellcheck",
    "ssh",
    "systemd",
)
PROGRAMS = {
    "bwrap": "sandbox",
    "bwrap|sandbox-exec": "sandbox",
    "cc": "compiler",
    "curl": "clients",
    "lm_eval": "clients",
    "ssh-agent": "ssh",
    "ssh-keygen": "ssh",
}
"""Facility that a program, or one of several, belongs to which a test needs: `@pytest.mark.needs("ssh-keygen")`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require",
        action="append",
        default=[],
        choices=FACILITIES,
        help="fail, rather than skip, where this facility is missing; may be given several times",
    )
    parser.addoption(
        "--note-durations",
        type=Path,
        metavar="FILE",
        help=f"write what the files take that take long, by which they are dealt out to workers: {order.TABLE.name}",
    )


def end_for_want_of(facility: str, reason: str, config: pytest.Config) -> None:
    """End a test because a facility is missing: a skip with its reason, or a failure."""
    if facility not in FACILITIES:
        raise ValueError(f"unknown facility {facility!r}; expected one of {', '.join(FACILITIES)}")
    if facility in config.getoption("--require"):
        pytest.fail(f"--require {facility}: {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def missing(request: pytest.FixtureRequest):
    """Return `end_for_want_of` for this run's options: FACILITY, REASON."""
    return lambda facility, reason: end_for_want_of(facility, reason, request.config)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """End a test that is marked `needs(PROGRAM, …)` before its fixtures start what this machine lacks."""
    for mark in item.iter_markers("needs"):
        for program in mark.args:
            if not any(map(shutil.which, program.split("|"))):
                end_for_want_of(PROGRAMS[program], f"{program.replace('|', ' or ')} is not installed", item.config)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Mark the cases that `make test` does not draw, then let `-m` leave tests out, then deal the long files out.

    A run without workers keeps the order as collected.
    """
    for place in tiers.left_to_ci([item.nodeid for item in items]):
        items[place].add_marker(pytest.mark.ci)
    selected = yield
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1:
        items[:] = [items[place] for place in order.dealt([i.nodeid for i in items], order.seconds_by_place(), workers)]
    return selected


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Import every test without looking for garbage, a worker its own part first; never look through them later."""
    gc.disable()
    try:
        worker, workers = os.environ.get("PYTEST_XDIST_WORKER"), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        if worker is not None and workers > 1:
            files = importing.files_below(session.config.args)
            importing.import_first(importing.part_of(files, worker, workers), session.config.rootpath)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep MLX from compiling fused kernels in this process, with a C++ compiler on a CPU.

    The folder of what it compiled is the machine's: of two workers that meet a kernel together, one may load what the
    other has written half of.
    """
    if "mlx.core" in sys.modules and session.items:
        from engine.backends.mlx.fusing import Unfused

        Unfused().__enter__()


# What `git init` and `git clone` give every repository of a test: no sample hooks, and no look for garbage after each
# push and commit, a process each.
GIT_TEMPLATE = Path(__file__).parent / "data" / "git-template"


def pytest_configure(config: pytest.Config) -> None:
    table = config.getoption("--note-durations")
    if table is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(order.Noting(table))
    os.environ.update(
        GIT_TEMPLATE_DIR=str(GIT_TEMPLATE),
        GIT_CONFIG_NOSYSTEM="1",
        GIT_CONFIG_GLOBAL=os.devnull,
        GIT_TERMINAL_PROMPT="0",
        GIT_AUTHOR_NAME="tests",
        GIT_AUTHOR_EMAIL="tests@example.org",
        GIT_COMMITTER_NAME="tests",
        GIT_COMMITTER_EMAIL="tests@example.org",
        NO_COLOR="1",
    )
    for name in [name for name in os.environ if name.startswith("KAKEYA_")]:
        del os.environ[name]
    os.environ.pop("INVOCATION_ID", None)  # set where the tests run below a service
    owner = tempfile.mkdtemp(prefix="kakeya-owner-")  # tests own no bus in the user's name
    os.environ["KAKEYA_OWNER_DIR"] = owner
    config.add_cleanup(lambda: shutil.rmtree(owner, ignore_errors=True))
