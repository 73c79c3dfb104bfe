"""`fetch --pack` and `open FILE`: a result as one file."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.cli.mac.results import pins_of
from bridge.cli.screen.answer import Answer
from bridge.client.clone.packed import SUFFIX, pack
from bridge.client.clone.store import Store, id_in, read_tree
from bridge.client.document.parts import WrittenData
from bridge.client.evidence.verify import verify_folder
from bridge.errors import IntegrityError, UsageError
from bridge.system.durable import write_atomically

if TYPE_CHECKING:
    from bridge.cli.mac.context import Invocation
    from bridge.cli.table.options import FetchOptions, OpenOptions
    from bridge.client.run.run import Run


def file_of_pack(call: Invocation[FetchOptions]) -> Path:
    """Return where --pack writes to.

    Raises:
        UsageError: a name by which no packed result is read, or a folder that is not there.
    """
    name = str(call.options.pack)
    file = Path(call.directory, name)
    if not file.name.endswith(SUFFIX) or not file.parent.is_dir():
        raise UsageError(f"cannot pack into {name[:200]!r}; expected NAME{SUFFIX} in a folder that is there")
    return file


def pack_result(call: Invocation[FetchOptions], run: Run) -> Path:
    """Write a run's verified result to one file and return its path."""
    file = file_of_pack(call)
    write_atomically(file, pack(run.result().tree), mode=0o644)
    return file


def unpack_result(call: Invocation[OpenOptions]) -> Answer:
    """Write a packed result whose bytes are whole into the data folder and print its folder.

    Raises:
        IntegrityError: it holds no result, or one that does not verify; nothing is written.
    """
    name = str(call.options.id)
    file = Path(call.directory, name)
    verified = verify_folder(file, pins_of(call, id_in(file)))
    if verified.run_id is None or verified.answer.refused:
        failed = verified.answer.text or "it holds no result"
        raise IntegrityError(f"{file} does not verify: {failed}", remedy=f"kakeya-mac verify {shlex.quote(name)}")
    folder = Store(call.settings().state_dir).write_result(verified.run_id, read_tree(file))
    return Answer(WrittenData(str(folder)), [str(folder)])
