"""The archive of weights, and a clone in its place: checked by digest, nothing of it trusted."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import zlib
from pathlib import Path
from random import Random

import pytest

from engine.cards.archive import add, pack, shipped
from engine.cli.main import main
from engine.errors import ModelWeightsError, UsageError

WEIGHTS = {"one": b"weights of one" * 100, "two": b"weights of two" * 100}


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    return folder_of(tmp_path / "clone", WEIGHTS)


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return folder_of(tmp_path / "wheel", {})


def folder_of(root: Path, weights: dict[str, bytes]) -> Path:
    for name, data in WEIGHTS.items():
        (root / name).mkdir(parents=True)
        card = {"sha256": {"model.safetensors": hashlib.sha256(data).hexdigest()}}
        (root / name / "card.json").write_text(json.dumps(card))
    for name, data in weights.items():
        (root / name / "model.safetensors").write_bytes(data)
    return root


def archive_of(path: Path, members: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for member, data in members:
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def test_an_archive_brings_a_wheel_its_weights(clone: Path, wheel: Path, tmp_path: Path) -> None:
    file = tmp_path / "kakeya-assets.tar.gz"
    assert pack(file, clone) == file.stat().st_size
    assert add(file, wheel) == ("one", "two")
    assert {model.name: model.path.read_bytes() for model in shipped(wheel)} == WEIGHTS


def test_the_same_weights_give_the_same_bytes(clone: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first.tar.gz", tmp_path / "second.tar.gz"
    pack(first, clone)
    pack(second, clone)
    assert first.read_bytes() == second.read_bytes()


def test_nothing_is_packed_that_the_card_does_not_name(clone: Path, tmp_path: Path) -> None:
    (clone / "two" / "model.safetensors").write_bytes(b"others")
    with pytest.raises(ModelWeightsError, match="the card of two says"):
        pack(tmp_path / "out.tar.gz", clone)
    assert not (tmp_path / "out.tar.gz").exists()


def test_an_existing_file_is_not_packed_over(clone: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("kept")
    with pytest.raises(UsageError, match="exists"):
        pack(tmp_path / "out", clone)
    assert (tmp_path / "out").read_text() == "kept"


@pytest.mark.parametrize(
    "what", ["changed", "missing", "twice", "foreign", "outside", "link", "cut", "damaged", "no archive"]
)
def test_another_archive_changes_nothing(what: str, wheel: Path, tmp_path: Path) -> None:
    members = {f"{name}/model.safetensors": data for name, data in WEIGHTS.items()}
    entries = [(tarfile.TarInfo(name), data) for name, data in members.items()]
    if what == "changed":
        entries[1] = (entries[1][0], entries[1][1] + b"!")
    elif what == "missing":
        entries.pop()
    elif what == "twice":
        entries.append(entries[0])
    elif what == "foreign":
        entries.append((tarfile.TarInfo("three/model.safetensors"), b""))
    elif what == "outside":
        entries.append((tarfile.TarInfo("../escaped"), b""))
    elif what == "link":
        link = tarfile.TarInfo("one/model.safetensors")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        entries.insert(0, (link, b""))
    file = archive_of(tmp_path / "file.tar.gz", entries)
    if what == "cut":
        file.write_bytes(file.read_bytes()[:-30])
    elif what == "damaged":  # within the bytes of a file
        entries[0] = (entries[0][0], Random(1).randbytes(100_000))  # which no packing makes shorter
        plain, packing = gzip.decompress(archive_of(file, entries).read_bytes()), zlib.compressobj(wbits=31)
        file.write_bytes(packing.compress(plain[:50_000]) + packing.flush(zlib.Z_FULL_FLUSH) + b"\xff" * 100)
    elif what == "no archive":
        file.write_bytes(gzip.compress(b"no archive at all"))
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    with pytest.raises(ModelWeightsError):
        add(file, wheel)
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before


@pytest.mark.parametrize("kind", [b"x", b"g", b"L", b"K", b"S", b"0"])
def test_a_header_that_announces_gigabytes_is_refused_before_they_are_read(
    kind: bytes, wheel: Path, tmp_path: Path
) -> None:
    header = tarfile.TarInfo("one/model.safetensors")
    header.type, header.size = kind, 3 << 30
    announced = header.tobuf(tarfile.GNU_FORMAT) + b"\0" * (1 << 20)
    (tmp_path / "file.tar.gz").write_bytes(gzip.compress(announced))
    with pytest.raises(ModelWeightsError, match="no plain file of at most 268435456 bytes; expected kakeya-assets"):
        add(tmp_path / "file.tar.gz", wheel)


def test_a_clone_s_folder_brings_a_wheel_its_weights_once_or_twice(tmp_path: Path, wheel: Path) -> None:
    folder_of(tmp_path / "kakeya/engine/assets", WEIGHTS)
    for _ in range(2):
        assert add(tmp_path / "kakeya", wheel) == ("one", "two")
        assert {model.name: model.path.read_bytes() for model in shipped(wheel)} == WEIGHTS


@pytest.mark.parametrize(
    ("two", "message"),
    [
        (b"others", r"two/model\.safetensors has sha256 .*; the card of two says .*; take a clone, or the archive"),
        (None, r"kakeya lacks two/model\.safetensors; take a clone, or the archive"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", r"git-lfs pointer, not weights; run `git lfs"),
    ],
    ids=["changed", "missing", "pointer"],
)
def test_another_clone_changes_nothing(two: bytes | None, message: str, wheel: Path, tmp_path: Path) -> None:
    brought = {"one": WEIGHTS["one"]} | ({} if two is None else {"two": two})
    folder_of(tmp_path / "kakeya/engine/assets", brought)
    before = sorted(wheel.rglob("*"))
    with pytest.raises(ModelWeightsError, match=message):
        add(tmp_path / "kakeya", wheel)
    assert sorted(wheel.rglob("*")) == before


def test_a_folder_that_is_no_clone_is_said_to_be_none(wheel: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelWeightsError, match="no folder engine/assets; expected the folder of a clone"):
        add(tmp_path, wheel)


def test_this_clone_lists_its_weights(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["assets", "list"]) == 0
    assert "kakeya-tiny-qwen3: weights in place" in capsys.readouterr().out
