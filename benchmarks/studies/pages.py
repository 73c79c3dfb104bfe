"""The pages of `open --html` in a real browser: console, overflow at four widths, the verdict found; a screenshot each.

Needs a Chromium on the path and the package `playwright`, which drives it; neither is part of any extra.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.studies.report import FOLDER, ROOT
from benchmarks.studies.study import Row, Study
from bridge.presets.workloads import read_folder
from tests.fakes.requester import Requester
from tests.fakes.scripted_host import ScriptedHost
from tests.support.workload_folder import INTERPRETER, write_workload

WIDTHS = (360, 768, 1280, 1600)
HEIGHT = 1100
EVIDENCE = ROOT / "docs" / "evidence" / "k3-fused-allmlx-code-rpa4gwnn"
SHOTS = FOLDER / "front-door" / "pages"


def cases() -> Sequence[str]:
    """Return the situations."""
    return list(_MAKE)


def run(case: str) -> list[Row]:
    """Write one page, open it, look.

    Raises:
        RuntimeError: there is no browser.
    """
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise RuntimeError("no chromium or google-chrome on the path")
    with tempfile.TemporaryDirectory(prefix="kakeya-pages-") as folder:
        make, verdict = _MAKE[case]
        path = make(Path(folder))
        return [
            _looked(browser, path, verdict, width, SHOTS / f"{case.replace(' ', '-')}-{width}.png") for width in WIDTHS
        ]


def _looked(browser: str, path: Path, verdict: str, width: int, shot: Path) -> Row:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 (in no extra)

    said: list[str] = []
    asked: list[str] = []
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = chromium.new_page(viewport={"width": width, "height": HEIGHT})
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        wide = page.evaluate("document.documentElement.scrollWidth")
        found = verdict in page.inner_text(".verdict")
        if width in {WIDTHS[0], WIDTHS[2]}:
            shot.parent.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=str(shot))
        chromium.close()
    foreign = [url for url in asked if not url.startswith(("file:", "data:"))]
    return {
        "width": width, "overflow_px": max(0, wide - width), "console": said, "requests": foreign, "verdict": found,
        "bytes": path.stat().st_size,
    }  # fmt: skip


def _claim_run(folder: Path) -> Path:
    return _page(Requester(folder), str(EVIDENCE))


def _failure(folder: Path) -> Path:
    requester = Requester(folder)
    host = ScriptedHost(requester.bus, requester.clock)
    host.beat()
    run_id = requester.run("run", "mlx-env-probe").out.strip()
    host.claim(run_id)
    host.start(run_id)
    host.log(run_id, b"loading\n" * 30 + b"Traceback: no Metal device " + b"x" * 300 + b"\n", final=True)
    host.judge(run_id)
    host.finish(run_id, "program_failed", decision="rejected", message="exit code 3", program_exit=3)
    return _page(requester, run_id)


def _sweep(folder: Path) -> Path:
    requester = Requester(folder)
    host = ScriptedHost(requester.bus, requester.clock)
    host.offer(read_folder(write_workload(folder / "workload"), INTERPRETER).presets["my-train"])
    words = ("run", "my-train", "-p", "lr=0.3,0.1,0.03", "--repeat", "4", "--json")
    sent = requester.run(*words).document["data"]
    for row in sent["runs"][:-1]:
        host.claim(row["id"])
        host.start(row["id"])
        losses = [abs(math.log10(row["params"]["lr"]) + 1) + (row["repeat"] + at) / 50 for at in range(6)]
        host.finish(
            row["id"],
            reports={f"repeat-{at}/report.json": {"metrics": {"final_loss": one}} for at, one in enumerate(losses)},
        )
    return _page(requester, sent["sweep"])


def _forged(folder: Path) -> Path:
    forged = folder / "forged"
    shutil.copytree(EVIDENCE, forged)
    report = forged / "reports" / "report.json"
    report.write_text(report.read_text().replace('"output_tokens"', '"output_tokens" ', 1))
    return _page(Requester(folder), str(forged))


def _page(requester: Requester, what: str) -> Path:
    ran = requester.run("open", "--html", what)
    if ran.code != 0:
        raise RuntimeError(ran.err)
    return Path(ran.out.strip())


_MAKE: dict[str, tuple[Callable[[Path], Path], str]] = {
    "claim run": (_claim_run, "recorded"),
    "failure": (_failure, "rejected"),
    "sweep": (_sweep, "exploratory"),
    "rejected forgery": (_forged, "does not verify"),
}

STUDY = Study("pages", "Do the pages of results work in a browser, at any width?", cases, run)
