"""A package that the engine computes with is what was installed, file by file, or its run says which file is not."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest

from bridge.runner.machine.file_digests import FileDigests
from bridge.runner.machine.packages import altered_files

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
        head = "".join(f"Requires-Dist: {one}\n" for one in requires)
        (info / "METADATA").write_text(f"Name: {name}\n{head}\nRequires-Dist: nothing-of-the-readme\n")
        lines = [f"{info.name}/RECORD,,"]
        for path, data in files.items():
            (tmp_path / "site" / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "site" / path).write_bytes(data)
            digest = urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{path},sha256={digest},{len(data)}")
        (info / "RECORD").write_text("\n".join(lines) + "\n")
    return tmp_path / "site"


def found(site: Path) -> tuple[str, ...]:
    return altered_files(site, FileDigests(site.parent / "digests.json"))


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
    assert found(site) == ("mlx-1.0.dist-info/RECORD",)


def test_a_package_without_a_record_and_a_module_of_the_start_are_named(site: Path) -> None:
    (site / "mlx-1.0.dist-info" / "RECORD").unlink()
    (site / "sitecustomize.py").write_bytes(b"import mlx_lm")
    assert found(site) == ("sitecustomize.py", "mlx-1.0.dist-info/RECORD")


def test_a_claim_names_the_library_that_was_patched_under_it(world, site: Path) -> None:
    (site / "mlx_lm" / "generate.py").write_bytes(b"import time; time.sleep(1)\n")
    w = world(site=site)
    claim, smoke = w.ask(profile="claim"), w.ask()
    runner = w.runner()
    for _ in range(2):
        w.serve_once(runner)
    assert w.record(claim.id).code.altered == ("mlx_lm/generate.py",)
    assert w.record(smoke.id).code.altered == ()
