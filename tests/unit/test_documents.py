"""Documents name things that exist: every test that SECURITY.md promises, every file a page links to,
every command a guide shows.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest

from bridge.cli.table.commands import MAC
from bridge.cli.table.parser import group_help, parse
from bridge.cli.table.runner_commands import RUNNER
from bridge.errors import UsageError, install_remedy
from engine.cli.main import VERBS as ENGINE_VERBS
from engine.errors import install_remedy as engine_install_remedy
from tests.generated.security_tests import promises
from tests.support.definitions import defines

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
CONTROL = re.compile(r"\[(S\d+)\]\(docs/security-tests\.md#s\d+\)")
ASKED = re.compile(r"(?:install_remedy|needs_extra)\(['\"](\w+)['\"]")
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)")


def test_every_test_that_security_promises_exists() -> None:
    promised = [test for promise in promises() for test in promise.tests]
    assert len(promised) == len(set(promised)) > 100
    assert [test for test in promised if not defines(*test.split("::"))] == []


def test_every_promise_has_a_test_and_every_control_is_explained() -> None:
    assert [promise.text for promise in promises() if not promise.tests] == []
    explained = set(CONTROL.findall((ROOT / "SECURITY.md").read_text("utf-8")))
    assert explained == {promise.control for promise in promises() if promise.control}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


PART = re.compile(r"\]\((?!\w+:)([^)\s#]*)#([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(text: str) -> set[str]:
    """Return what a link may name of a page: its headings as hosts and MkDocs spell them, and ids written as HTML."""
    headings = HEADING.findall(FENCE.sub("", text))
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    slugs = {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in plain}
    return slugs | set(re.findall(r'(?:id|name)="([^"]+)"', text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_part_of_a_page_leads_there(page: Path) -> None:
    links = [(page.parent / name if name else page, part) for name, part in PART.findall(page.read_text("utf-8"))]
    pages = [(target, part) for target, part in links if target.suffix == ".md"]
    assert [f"{target.name}#{part}" for target, part in pages if part not in anchors(target.read_text("utf-8"))] == []


def test_headings_are_spelt_as_links_name_them() -> None:
    page = '# A *first* look\n```\n# no heading\n```\n## `run`, [then](x.md) wait\n<a id="s1"></a>\n'
    assert anchors(page) == {"a-first-look", "run-then-wait", "s1"}


def test_the_page_of_all_guides_has_each_of_them() -> None:
    guides = ROOT / "docs" / "guides"
    listed = set(LINK.findall((guides / "README.md").read_text("utf-8")))
    assert {path.name for path in guides.glob("*.md")} - listed == {"README.md"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_names_a_path_of_one_machine(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"(/work/|/root/|/home/[a-z])", text)


BY_NAME = re.compile(r"pip install[^\n`]* ['\"]?kakeya\b")
SOURCES = [path for folder in ("bridge", "engine", "runner-setup") for path in sorted((ROOT / folder).rglob("*"))]


def test_nothing_is_installed_by_a_name_that_nobody_owns() -> None:
    """A package index serves that name to whoever registers it first: install from a clone, a tag or a wheel file."""
    texts = [path for path in SOURCES if path.suffix in {".py", ".sh", ".toml", ".md"}]
    named = [str(path.relative_to(ROOT)) for path in [*PAGES, *texts] if BY_NAME.search(path.read_text("utf-8"))]
    assert named == []
    assert BY_NAME.search("python -m pip install 'kakeya[mcp]'")
    assert not BY_NAME.search("python -m pip install -e './kakeya[mcp]'")


def test_bridge_and_engine_say_alike_how_an_extra_is_installed() -> None:
    assert engine_install_remedy("mlx") == install_remedy("mlx")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    mentioned = {extra for path in SOURCES if path.suffix == ".py" for extra in ASKED.findall(path.read_text("utf-8"))}
    assert mentioned == {"mlx", "distributed", "github", "gguf", "mcp", "models", "serve"} <= set(extras)


COMMAND = re.compile(r"`((?:kakeya-mac|kakeya-runner|kakeya-engine)\s[^`]*)`")
FENCE = re.compile(r"^```\w*\n(.*?)^```", re.DOTALL | re.MULTILINE)
GENERATED = re.compile(r"<!-- generated by.*?<!-- end of generated", re.DOTALL)  # from the parsers, drift-tested
COMPARISON = ROOT / "docs" / "comparison.md"
GUIDES = [*sorted((ROOT / "docs" / "guides").glob("*.md")), ROOT / "README.md", COMPARISON]


def command_lines(text: str) -> list[str]:
    """Return the command lines of a page: in fences at the start of a line, and in running text between backticks."""
    text = GENERATED.sub("", text)
    fenced = [line.strip() for block in FENCE.findall(text) for line in block.splitlines()]
    fenced = [re.sub(r"^(sudo (-u \S+ )?)?(\S*/)?(?=kakeya-)", "", line) for line in fenced]
    lines = [line for line in fenced if line.startswith(("kakeya-mac ", "kakeya-runner ", "kakeya-engine "))]
    return lines + COMMAND.findall(FENCE.sub("", text))


def words_of(line: str) -> list[str]:
    """Return the words of one command as typed: no comment, redirection or second command, placeholders filled in."""
    first = re.split(r"\s+(?:&&|\|\||[|>])\s*", re.sub(r"\s+#.*$", "", re.sub(r"\$\([^)]*\)", "x", line)))[0]
    plain = re.sub(r"\[[^\]]*\]", "", first).replace("…", "x")  # optional parts of a synopsis
    words = shlex.split(plain.rstrip(".,;:"))
    fill = {"ID": "@last", "FILE": "x.yml", "TIME": "1h30m", "CODE": "G4-MARKS", "PRESET": "mlx-env-probe"}
    return [fill.get(word, word) for word in words]


def parses(words: list[str]) -> str | None:
    """Return why a command line is none, None when its own parser takes it."""
    name, *rest = words
    if name == "kakeya-engine":
        return None if rest[0] in ENGINE_VERBS else f"no command {rest[0]!r}"
    program = MAC if name == "kakeya-mac" else RUNNER
    if not rest or any(word.startswith("KAKEYA") for word in rest):
        return None
    command, left = program.find(rest)
    if command is None:
        return None if len(rest) == 1 and group_help(program, rest[0]) else f"no command {rest[0]!r}"
    if "--help" in left or not left:
        return None
    try:
        parse(command, left)
    except UsageError as error:
        return error.message
    return None


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_every_command_of_a_guide_exists_and_parses(page: Path) -> None:
    wrong = []
    for line in command_lines(page.read_text(encoding="utf-8")):
        error = parses(words_of(line))
        if error is not None:
            wrong.append(f"{line}\n    {error}")
    assert wrong == [], "\n".join(wrong)


def test_whatever_is_said_to_be_there_is_shown_by_a_command() -> None:
    cells = [cell for line in COMPARISON.read_text("utf-8").splitlines() for cell in line.split("|")]
    had = [cell for cell in cells if cell.strip().startswith("have:")]
    assert len(had) > 10
    assert [cell for cell in had if not COMMAND.findall(cell) and "bare git" not in cell] == []


@pytest.mark.parametrize(
    "line",
    [
        "kakeya-mac runn mlx-env-probe",
        "kakeya-mac run mlx-env-probe --wiat",
        "kakeya-runner serv",
        "kakeya-runner serve --buss x",
        "kakeya-runner job-hook decidee x",
        "kakeya-engine evall",
    ],
)
def test_a_command_that_does_not_exist_is_found(line: str) -> None:
    assert parses(words_of(line)) is not None


OPTION = re.compile(r"runner-setup/(setup_\w+\.sh)([^\n`]*)")


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_every_set_up_option_of_a_guide_exists(page: Path) -> None:
    library = (ROOT / "runner-setup" / "lib.sh").read_text(encoding="utf-8")
    for script, words in OPTION.findall(page.read_text(encoding="utf-8")):
        assert (ROOT / "runner-setup" / script).is_file()
        for option in re.findall(r"--[a-z0-9-]+", words.split("#")[0]):
            assert re.search(rf"^  {option}\b", library, re.MULTILINE), f"{page.name}: {script} {option}"


def test_nothing_is_committed_that_is_built_where_it_is_used() -> None:
    """A program built here would be taken for the one that `make` builds on another kind of machine."""
    words = ["git", "ls-files", "--cached", "--ignored", "--exclude-per-directory=.gitignore"]
    committed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert committed.stdout.splitlines() == []
