"""`status`, `logs`, `fetch`, `open`: looking at one run."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from bridge.cli.screen.run_view import print_status
from bridge.client.document.untrusted import PREFIX, clean_line, fenced, new_fence
from bridge.durations import duration_text
from bridge.errors import UsageError
from bridge.system.durable import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.cli.mac.context import Invocation
    from bridge.client.run.run import Run
    from bridge.client.run.status import RunStatus


_OPEN: Final = "kakeya-mac open @last; the page of the bus: kakeya-mac open --html"


def status(call: Invocation) -> int:
    """Say where a run is and how it ended; answering is success, whatever the answer."""
    run = call.find_run(call.args.id)
    found = run.with_actions(run.status())
    print_status(call.output, run, found, call.directory)
    if not found.terminal and run.elapsed_s is not None:
        call.output.row("asked", f"{duration_text(run.elapsed_s)} ago")
        if found.state == "queued" and found.reason == "pending":
            why, ignored = run.why_queued(found.view)
            call.output.row("waiting", why)
            for line in ignored:
                call.output.row("ignored", line)
    _document(call, run, found)
    return 0


def logs(call: Invocation) -> int:
    """Print a run's log between fences."""
    run = call.find_run(call.args.id)
    if call.args.follow and not call.output.json and run.session is not None:
        return _follow(call, run)
    lines = run.logs()
    last = lines[-call.args.lines :] if call.args.lines else lines
    fence = new_fence()
    for line in fenced(last, "log", fence):
        call.output.data(line)
    if not lines and not (status := run.status(fetch=False)).terminal:
        call.output.say("note", f"{run.short} wrote nothing yet: it is {status.state_text}")
    shown = {"untrusted": True, "fence": fence, "earlier_lines": len(lines) - len(last), "lines": last}
    _document(call, run, run.status(), log_tail=shown)
    return 0


def _follow(call: Invocation, run: Run) -> int:
    """Print log lines as they come, fenced, until the run ends."""
    fence = new_fence()
    call.output.data(f"--- untrusted log {fence} ---")
    for progress in run.follow(log="lines"):
        if progress.kind == "trouble":
            call.output.note(progress.lines[0])
        # The stored log is whole; the live one may have ended a chunk earlier.
        lines = run.logs(after=progress.log_bytes) if progress.kind == "end" else progress.lines
        if progress.kind in {"log", "end"}:
            for line in lines:
                call.output.data(f"{PREFIX}{line}")
    call.output.data(f"--- end of untrusted log {fence} ---")
    end = run.status()
    if end.message or not end.terminal:
        call.output.say("end", f"  {end.reason}" + (f": {clean_line(end.message)}" if end.message else ""))
    return 0


def fetch(call: Invocation) -> int:
    """Write a run's verified result to disk, with --pack as one file."""
    if call.args.pack is not None:
        from bridge.cli.mac.watch.packing import file_of_pack, pack_result

        file_of_pack(call)  # a name that cannot be packed into is said before anything is fetched
    run = call.find_run(call.args.id)
    run.result()
    if call.args.path is not None:
        call.output.data(str(_copy_file(call, run)))
    elif call.args.pack is None:
        print_status(call.output, run, run.status(), call.directory)
    else:
        call.output.data(str(pack_result(call, run)))
    _document(call, run, run.status())
    return 0


def _copy_file(call: Invocation, run: Run) -> Path:
    """Copy one file of a verified result into the working directory; return where.

    Raises:
        UsageError: no file or several are meant, or one of that name is here already.
    """
    if call.args.pack is not None:
        raise UsageError("--pack writes the whole result; name a PATH or --pack, not both")
    files, wanted = run.result().tree.files, call.args.path.strip("/")
    names = [name for name in files if name == wanted] or [name for name in files if f"/{name}".endswith(f"/{wanted}")]
    if len(names) != 1:
        kept = [f"reports/{name}" for name in run.result().kept]
        shown = ", ".join((names or kept or sorted(files))[:8])
        what = f"{len(names)} files are called" if names else "no file is called"
        raise UsageError(
            clean_line(f"{what} {wanted[:120]!r} in {run.short}: {shown}"), remedy="name one of them in full"
        )
    path = call.directory / PurePosixPath(names[0]).name
    if path.exists():
        raise UsageError(f"{path} is here already", remedy="move it, or go to another folder")
    write_atomically(path, files[names[0]], mode=0o644)
    return path


def open_result(call: Invocation) -> int:
    """Print the folder of a run's result, of a packed one where it is unpacked, or the page that shows it."""
    if call.args.html:
        from bridge.cli.mac.watch.pages import open_page

        return open_page(call)
    if call.args.id is None:
        raise UsageError("open needs a run", remedy=_OPEN)
    if call.args.id.endswith(".tar.xz"):
        from bridge.cli.mac.watch.packing import unpack_result

        return unpack_result(call)
    run = call.find_run(call.args.id)
    run.result()
    call.output.data(str(run.status().folder))
    _document(call, run, run.status())
    return 0


def _document(call: Invocation, run: Run, status: RunStatus, **changed: object) -> None:
    """Write the document about a run where one is asked for: its models are not built for people."""
    if call.output.json:
        from bridge.client.run.present import document

        call.output.document({**document(run, status, call.command.name, exit_code=0), **changed})
