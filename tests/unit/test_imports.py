"""Every import of the tree leads somewhere: those inside functions and under TYPE_CHECKING too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.imports import Import, Resolver

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("benchmarks", "bridge", "engine", "examples", "tests")
MAY_BE_ABSENT = {
    "_typeshed": "stubs that type checkers alone have",
    "nothing": "a test's name for a module that is not there",
    "pynvml": "for NVIDIA devices, which no macOS has: there no extra brings it",
    "xllamacpp": "llama.cpp's server as a package, for comparisons alone",
}
"""Packages that a complete environment may lack, each with the reason."""


def below(root: Path, resolver: Resolver) -> list[Import]:
    """Return every import of the Python files of a tree."""
    paths = [path for folder in FOLDERS for path in sorted((root / folder).rglob("*.py"))]
    return [item for path in paths for item in resolver.read(path, str(path.relative_to(root))).imports]


def package(item: Import) -> str:
    return item.module.partition(".")[0]


@pytest.mark.ci
def test_every_import_of_the_tree_leads_somewhere() -> None:
    resolver = Resolver(ROOT)
    items = below(ROOT, resolver)
    required = [item for item in items if package(item) not in MAY_BE_ABSENT]

    assert [problem for item in required if (problem := resolver.problem(item)) is not None] == []
    assert {package(item) for item in items} >= MAY_BE_ABSENT.keys(), "an exception that nothing needs"


@pytest.fixture
def problems(tmp_path: Path) -> Callable[[str], list[str]]:
    """Return what judges the text of a module of a small tree, in front of this one."""
    for file, text in {
        "bridge/__init__.py": "",
        "engine/__init__.py": "",
        "engine/open.py": "from engine.inner.deep import *\n",
        "engine/inner/__init__.py": "if condition():\n    early = 1\nelse:\n    late: int = 2\n",
        "engine/inner/deep.py": "for item, (left, right) in ():\n    local = item\ndef make():\n    hidden = 1\n",
        "engine/made_pb2.py": "build(globals())\n",
        "engine/made_pb2.pyi": "class Message: ...\n",
    }.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)

    def judge(text: str) -> list[str]:
        (tmp_path / "engine" / "inner" / "user.py").write_text(text)
        resolver = Resolver(tmp_path, ROOT)
        return [problem for item in below(tmp_path, resolver) if (problem := resolver.problem(item)) is not None]

    return judge


@pytest.mark.parametrize(
    "text",
    [
        "from engine.inner import early, late, deep",
        "from engine.inner.deep import item, left, right, local, make",
        "from . import deep\nfrom .deep import make\nfrom ..open import make",
        "from engine.open import local",
        "from engine.made_pb2 import Message",
        "import deep\nimport os.path\nfrom os import path",
        "import numpy.linalg\nfrom tuf.api.metadata import Root\nimport mlx.core",
        "from benchmarks import studies",
    ],
)
def test_an_import_that_leads_somewhere_is_let_through(problems: Callable[[str], list[str]], text: str) -> None:
    assert problems(text) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("def later():\n    from engine.inner import never", "user.py:2: engine.inner has no never"),
        ("if TYPE_CHECKING:\n    from engine.inner import Never", "user.py:2: engine.inner has no Never"),
        ("try:\n    import engine.gone\nexcept ImportError:\n    pass", "user.py:2: there is no module engine.gone"),
        ("from ..inner.deep import hidden", "user.py:1: engine.inner.deep has no hidden"),
        ("from engine.open import hidden", "user.py:1: engine.open has no hidden"),
        ("from engine.made_pb2 import Other", "user.py:1: engine.made_pb2 has no Other"),
        ("from os.path import never", "user.py:1: os.path has no never"),
        ("from tuf.api.metadata import Never", "user.py:1: tuf.api.metadata has no Never"),
        ("import nobody_offers_this", "user.py:1: there is no module nobody_offers_this"),
        ('pytest.importorskip("engine.gone")', "user.py:1: there is no module engine.gone"),
    ],
)
def test_an_import_that_leads_nowhere_is_named(problems: Callable[[str], list[str]], text: str, problem: str) -> None:
    assert problems(text) == [f"engine/inner/{problem}"]
