"""`status`, `logs`, `fetch`, `open`: looking at one run."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from bridge.cli.screen.answer import Answer, Line, Row, Talk, about_run
from bridge.cli.screen.run_view import status_rows
from bridge.client.document.untrusted import PREFIX, clean_line, fenced, new_fence
from bridge.durations import duration_text
from bridge.errors import UsageError
from bridge.system.durable import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.cli.mac.context import Invocation
    from bridge.cli.table.options import FetchOptions, LogsOptions, OpenOptions, RunIdOptions
    from bridge.client.run.run import Run


_OPEN: Final = "kakeya-mac open @last; the page of the bus: kakeya-mac open --html"


def status(call: Invocation[RunIdOptions]) -> Answer:
    """Say where a run is and how it ended; answering is success, whatever the answer."""
    run = call.find_run(call.options.id)
    status = run.with_actions(run.status())
    lines: list[Line] = [*status_rows(run, status, call.directory)]
    if not status.terminal and run.elapsed_s is not None:
        lines.append(Row("asked", f"{duration_text(run.elapsed_s)} ago"))
        if status.state == "queued" and status.reason == "pending":
            why, ignored = run.why_queued(status.view)
            lines += [Row("waiting", why), *(Row("ignored", line) for line in ignored)]
    return about_run(run, status, lines)


def logs(call: Invocation[LogsOptions]) -> Answer:
    """Print a run's log between fences."""
    run = call.find_run(call.options.id)
    if call.options.follow and not call.output.json and run.session is not None:
        _follow(call, run)
        return Answer()
    lines = run.logs()
    last = lines if call.options.lines is None else lines[max(0, len(lines) - call.options.lines) :]
    fence = new_fence()
    text: list[Line] = [*fenced(last, "log", fence)]
    if not lines and not (status := run.status(fetch=False)).terminal:
        text.append(Talk("note", f"{run.short} wrote nothing yet: it is {status.state_text}"))
    shown = {"untrusted": True, "fence": fence, "earlier_lines": len(lines) - len(last), "lines": last}
    return about_run(run, run.status(), text, log_tail=shown)


def _follow(call: Invocation[LogsOptions], run: Run) -> None:
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


def fetch(call: Invocation[FetchOptions]) -> Answer:
    """Write a run's verified result to disk, with --pack as one file."""
    if call.options.pack is not None:
        from bridge.cli.mac.watch.packing import file_of_pack, pack_result

        file_of_pack(call)  # a name that cannot be packed into is said before anything is fetched
    run = call.find_run(call.options.id)
    run.result()
    status = run.status()
    if call.options.path is not None:
        return about_run(run, status, [str(_copy_file(call, run))])
    if call.options.pack is not None:
        return about_run(run, status, [str(pack_result(call, run))])
    return about_run(run, status, status_rows(run, status, call.directory))


def _copy_file(call: Invocation[FetchOptions], run: Run) -> Path:
    """Copy one file of a verified result into the working directory; return where.

    Raises:
        UsageError: no file or several are meant, or one of that name is here already.
    """
    if call.options.pack is not None:
        raise UsageError("--pack writes the whole result; name a PATH or --pack, not both")
    files, path_text = run.result().tree.files, str(call.options.path).strip("/")
    names = [name for name in files if name == path_text] or [
        name for name in files if f"/{name}".endswith(f"/{path_text}")
    ]
    if len(names) != 1:
        kept_files = [f"reports/{name}" for name in run.result().kept]
        shown = ", ".join((names or kept_files or sorted(files))[:8])
        what = f"{len(names)} files are called" if names else "no file is called"
        raise UsageError(
            clean_line(f"{what} {path_text[:120]!r} in {run.short}: {shown}"), remedy="name one of them in full"
        )
    path = call.directory / PurePosixPath(names[0]).name
    if path.exists():
        raise UsageError(f"{path} is here already", remedy="move it, or go to another folder")
    write_atomically(path, files[names[0]], mode=0o644)
    return path


def open_result(call: Invocation[OpenOptions]) -> Answer:
    """Print the folder of a run's result, of a packed one where it is unpacked, or the page that shows it."""
    if call.options.html:
        from bridge.cli.mac.watch.pages import open_page

        return open_page(call)
    if call.options.id is None:
        raise UsageError("open needs a run", remedy=_OPEN)
    if call.options.id.endswith(".tar.xz"):
        from bridge.cli.mac.watch.packing import unpack_result

        return unpack_result(call)
    run = call.find_run(call.options.id)
    run.result()
    status = run.status()
    return about_run(run, status, [str(status.folder)])
