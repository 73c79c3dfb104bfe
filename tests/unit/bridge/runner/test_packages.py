"""A package that the engine computes with is what was installed, file by file, or its run says which file is not."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest

from bridge.runner.machine.file_digests import FileDigests
from bridge.runner.machine.identity import ask_interpreter
from bridge.runner.machine.packages import altered_files, beside_engine
from tests.fakes.git_servers import git

PACKAGES = {
    "kakeya": ({}, ("mlx-lm>=0.3; extra == 'mlx'", "pytest; extra == 'dev'")),
    "mlx_lm": (
        {"mlx_lm/generate.py": b"step = 1\n", "mlx_lm/README.md": b"words"},
        ("mlx[cpu]", "rich; extra == 'chat'"),
    ),
    "mlx": ({"mlx/core.cpython-311-x86_64-linux-gnu.so": b"native"}, ('mlx-cpu==1; extra == "cpu"',)),
    "mlx_cpu": ({"mlx/lib/libmlx.so.1": b"kernels"}, ()),
    "pytest": ({"pytest/__init__.py": b"tests"}, ()),
    "rich": ({"rich/__init__.py": b"colours"}, ()),
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Where packages are installed: the engine's, and some that it does not compute with."""
    for name, (files, requires) in PACKAGES.items():
        info = tmp_path / "site" / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        head = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
        (info / "METADATA").write_text(f"Name: {name}\n{head}\nRequires-Dist: nothing-of-the-readme\n")
        lines = [f"{info.name}/RECORD,,"]
        for path, data in files.items():
            (tmp_path / "site" / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "site" / path).write_bytes(data)
            digest = urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{path},sha256={digest},{len(data)}")
        (info / "RECORD").write_text("\n".join(lines) + "\n")
    return tmp_path / "site"


def found(site: Path, strange: tuple[Path, ...] = (), names: tuple[str, ...] = ("mlx", "pytest")) -> tuple[str, ...]:
    return altered_files((site,), strange, names, FileDigests(site.parent / "digests.json"))


def test_what_was_installed_is_not_named(site: Path) -> None:
    assert found(site) == ()
    for path in ("mlx_lm/README.md", "pytest/__init__.py", "rich/__init__.py"):  # nothing computes with these
        (site / path).write_bytes(b"other")
    assert found(site) == ()


@pytest.mark.parametrize(
    "path", ["mlx_lm/generate.py", "mlx/core.cpython-311-x86_64-linux-gnu.so", "mlx/lib/libmlx.so.1"]
)
def test_a_file_that_was_changed_or_removed_is_named(site: Path, path: str) -> None:
    assert found(site) == ()  # and its digest is known
    (site / path).write_bytes((site / path).read_bytes()[::-1])
    assert found(site) == (path,)
    (site / path).unlink()
    assert found(site) == (path,)


def test_a_record_that_cannot_be_read_is_named_and_an_odd_one_bears(site: Path) -> None:
    record = site / "mlx-1.0.dist-info" / "RECORD"
    record.write_bytes(record.read_bytes() + b"\n\nalone\n")
    (site / "mlx-1.0.dist-info" / "METADATA").unlink()
    assert found(site) == ()
    record.write_bytes(b"\xff\xfe")
    assert found(site) == ("mlx-1.0.dist-info/RECORD", "mlx/core.cpython-311-x86_64-linux-gnu.so")


def test_a_package_without_a_record_and_a_module_of_the_start_are_named(site: Path) -> None:
    (site / "mlx-1.0.dist-info" / "RECORD").unlink()
    (site / "sitecustomize.py").write_bytes(b"import mlx_lm")
    assert found(site) == ("sitecustomize.py", "mlx-1.0.dist-info/RECORD", "mlx/core.cpython-311-x86_64-linux-gnu.so")


@pytest.mark.parametrize(
    "path",
    [
        "mlx_lm/added.py",
        "mlx_lm/generate.abi3.so",  # Python takes it before generate.py
        "mlx_lm/added.pyc",
        "mlx/lib/libadded.dylib",
        "rich/added.py",  # nothing requires it, and anything may import it
        "rich.cpython-311-x86_64-linux-gnu.so",
        "triton/__init__.py",  # a package whose metadata is gone
        "added.pth",
        "sitecustomize/__init__.py",
        "usercustomize.pyc",
    ],
)
def test_a_file_that_nobody_installed_is_named(site: Path, path: str) -> None:
    (site / path).parent.mkdir(exist_ok=True)
    (site / path).write_bytes(b"import time\n")
    startup = path.partition("/")[0]
    assert found(site) == (startup if startup == "sitecustomize" else path,)


def test_what_nothing_loads_and_what_is_compiled_beside_sources_is_not_named(site: Path) -> None:
    (site / "mlx_lm" / "__pycache__").mkdir()
    for path in ("mlx_lm/__pycache__/generate.cpython-311.pyc", "mlx_lm/notes.txt", "words.md"):
        (site / path).write_bytes(b"words")
    assert found(site) == ()


def test_a_link_to_a_folder_beside_a_package_is_named(site: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (site / "mlx_lm" / "models").symlink_to(tmp_path / "elsewhere")
    assert found(site) == ("mlx_lm/models",)


def _list_pth(site: Path, package: str, data: bytes) -> Path:
    digest = urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    record = site / f"{package}-1.0.dist-info" / "RECORD"
    record.write_text(record.read_text() + f"start.pth,sha256={digest},{len(data)}\n")
    (site / "start.pth").write_bytes(data)
    return site / "start.pth"


def test_start_up_code_that_was_installed_is_compared_and_so_is_the_package_that_brings_it(site: Path) -> None:
    start = _list_pth(site, "pytest", b"import pytest\n")
    assert found(site) == ()
    (site / "pytest" / "__init__.py").write_bytes(b"import time\n")
    assert found(site) == ("pytest/__init__.py",)
    start.write_bytes(b"import os\n")
    assert set(found(site)) == {"pytest/__init__.py", "start.pth"}


def test_an_editable_package_one_that_lies_elsewhere_and_another_place_are_named(site: Path, tmp_path: Path) -> None:
    for name in ("kakeya", "mlx_lm"):
        (site / f"{name}-1.0.dist-info" / "direct_url.json").write_text('{"dir_info": {"editable": true}}')
    assert found(site) == ("mlx_lm-1.0.dist-info/direct_url.json",)  # the engine's own commit is on record
    for left in sorted((site / "mlx_cpu-1.0.dist-info").iterdir()):
        left.unlink()
    (site / "mlx_cpu-1.0.dist-info").rmdir()
    (site / "mlx" / "lib" / "libmlx.so.1").unlink()
    assert found(site, (tmp_path / "mine",), ("mlx", "mlx-cpu")) == (
        str(tmp_path / "mine"),
        "mlx-cpu",
        "mlx_lm-1.0.dist-info/direct_url.json",
    )
    assert "mlx-cpu" not in found(site)  # what no interpreter knows of, nothing imports


def test_an_interpreter_says_where_it_looks_for_modules(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True, capture_output=True)
    python = str(venv / "bin" / "python")
    facts = ask_interpreter(python)
    (site,) = facts.sites
    assert (os.path.commonpath([site, venv]), facts.strange) == (str(venv), ())
    (tmp_path / "mine").mkdir()
    (site / "mine.pth").write_text(f"{tmp_path / 'mine'}\n")
    again = ask_interpreter(python)
    assert (again.sites, again.strange) == ((site,), (tmp_path / "mine",))
    named = altered_files(again.sites, again.strange, again.packages, FileDigests(tmp_path / "digests.json"))
    assert named == ("mine.pth", str(tmp_path / "mine"))


def test_a_claim_names_the_library_that_was_patched_under_it(world, site: Path) -> None:
    (site / "mlx_lm" / "generate.py").write_bytes(b"import time; time.sleep(1)\n")
    w = world(site=site)
    claim, smoke = w.ask(profile="claim"), w.ask()
    runner = w.runner()
    for _ in range(2):
        w.serve_once(runner)
    assert w.record(claim.id).code.altered == ("mlx_lm/generate.py",)
    assert w.record(smoke.id).code.altered == ()


def test_beside_an_editable_engine_only_what_git_tracks_is_expected(tmp_path: Path) -> None:
    for folder in ("bridge", "engine", "tests", "numba", "notes"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / ("words.md" if folder == "notes" else "__init__.py")).write_text("")
    (tmp_path / "sitecustomize.py").write_text("")
    git("init", "-q", cwd=tmp_path)
    git("add", "bridge", "engine", "tests", "sitecustomize.py", cwd=tmp_path)
    (tmp_path / "triton.py").write_text("")
    for module in ("numpy/__init__.pyc", "pandas/__init__.abi3.so", "usercustomize/words.py"):
        (tmp_path / module).parent.mkdir()
        (tmp_path / module).write_bytes(b"")
    expected = ["numba", "numpy", "pandas", "sitecustomize.py", "triton.py", "usercustomize"]
    assert [path.name for path in beside_engine(tmp_path)] == expected


def test_where_nobody_tracks_anything_all_but_the_two_packages_is_named(tmp_path: Path) -> None:
    for folder in ("bridge", "engine", "tests"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("")
    assert [path.name for path in beside_engine(tmp_path)] == ["tests"]


def test_of_two_packages_of_one_name_the_first_on_the_path_counts(site: Path, tmp_path: Path) -> None:
    later = tmp_path / "later" / "mlx-0.9.dist-info"
    later.mkdir(parents=True)
    (later / "METADATA").write_text("Name: mlx\n\n")  # and no RECORD, as a distribution's own packages have none
    digests = FileDigests(tmp_path / "digests.json")
    assert altered_files((site, later.parent), (), (), digests) == ()
    assert "mlx-0.9.dist-info/RECORD" in altered_files((later.parent, site), (), (), digests)


def test_what_an_interrupted_upgrade_left_and_a_link_to_itself_are_no_modules(site: Path) -> None:
    (site / "~lx").mkdir()
    (site / "~lx" / "core.py").write_text("")
    (site / "~lx-1.0.dist-info").mkdir()
    (site / "mlx" / "round").symlink_to("round")
    assert found(site) == ()
