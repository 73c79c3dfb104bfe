"""Find the folders of this machine that a published result says by name only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bridge.records.places import PlaceNames
from bridge.runner.machine.identity import CodeFacts
from bridge.runner.state.folder import StateFolder


def place_names(run: Path, state: StateFolder, interpreter: str, code: CodeFacts) -> PlaceNames:
    """Return how the folders around a run are said.

    Args:
        run: the folder of the run.
        state: of the runner.
        interpreter: the Python whose packages are the host's engine.
        code: where that engine lies: beside the environment for an editable installation.
    """
    environment = Path(interpreter).parent.parent
    owner = () if state.owner is None else (state.owner,)
    return PlaceNames(
        {
            "RUN": _spellings(run),
            "STATE": _spellings(state.root, *owner),
            "ENV": _spellings(environment) if (environment / "pyvenv.cfg").is_file() else (),
            "SOURCE": () if code.engine is None else _spellings(code.engine.parent),
            "HOME": _spellings(Path.home()),
        }
    )


def _spellings(*folders: Path) -> Iterator[Path]:
    for folder in folders:
        yield folder.absolute()
        yield folder.resolve()
