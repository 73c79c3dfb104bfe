"""A packed result: the same as its folder, and of a hostile file one line."""

import io
import lzma
import resource
import tarfile
import zlib

import pytest

from bridge.bus.tree import Tree
from bridge.client.clone.packed import pack, read_packed
from bridge.client.clone.store import read_tree
from bridge.errors import IntegrityError
from bridge.limits import RESULT_MAX_BYTES, RESULT_MAX_FILES
from tests.support.committed import SMOKE, unpacked

LONG = f"reports/{'n' * 100}/{'m' * 90}.json"
TREE = Tree({"manifest.json": b"{}", "reports/report.json": b"[1]", "log.txt": b"", LONG: b"x"})
END = bytes(2 * tarfile.BLOCKSIZE)


def archive(*members, data=b"x", **header):
    """Return a packed archive of members by name; `header` sets fields of each."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as written:
        for name in members:
            member = tarfile.TarInfo(name)
            for field, value in header.items():
                setattr(member, field, value)
            member.size = len(data) if member.isreg() else 0
            written.addfile(member, io.BytesIO(data) if member.isreg() else None)
    return lzma.compress(plain.getvalue())


def block(name, kind=tarfile.REGTYPE, data=b"x"):
    """Return a member's header and bytes as they stand in an archive."""
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, len(data)
    return member.tobuf(tarfile.GNU_FORMAT) + data + bytes(-len(data) % tarfile.BLOCKSIZE)


def extended(kind, *records):
    """Return an extended header of (key, value) records, whose length stands before each."""
    lines = []
    for key, value in records:
        line = b" %b=%b\n" % (key, value)
        length = len(line) + 1
        while len(b"%d" % length) + len(line) != length:
            length += 1
        lines.append(b"%d%b" % (length, line))
    return block("extended", kind, b"".join(lines))


@pytest.fixture
def refusal(tmp_path):
    """Return what reads bytes as a packed result and returns the message it is refused with."""

    def refused(data):
        file = tmp_path / "hostile.tar.xz"
        file.write_bytes(data)
        with pytest.raises(IntegrityError) as error:
            read_packed(file)
        assert "\n" not in error.value.message
        return error.value.message

    return refused


def test_what_was_packed_is_read_again_and_packing_it_twice_gives_the_same_bytes(tmp_path):
    file = tmp_path / "result.tar.xz"
    file.write_bytes(pack(TREE))
    assert read_packed(file) == read_tree(file) == TREE
    assert pack(Tree(dict(reversed(TREE.files.items())))) == file.read_bytes()


def test_a_committed_result_is_the_same_from_its_folder(tmp_path):
    folder = unpacked(SMOKE, tmp_path / "smoke")
    assert read_tree(folder) == read_tree(SMOKE)
    assert pack(read_tree(folder)) == SMOKE.read_bytes()


@pytest.mark.parametrize(
    "name",
    [
        "../outside",
        "/etc/passwd",
        "reports/../../outside",
        ".hidden",
        "a\\b",
        "./manifest.json",
        "a\x1b[2J",
        "a/" * 8 + "b",
    ],
)
def test_a_path_that_leads_outside_is_refused(refusal, name):
    assert "not a plain relative path" in refusal(archive(name))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_what_is_no_regular_file_is_refused(refusal, kind):
    assert "no regular file" in refusal(archive("report", type=kind, linkname="/etc/passwd"))


def test_a_name_that_comes_twice_is_refused(refusal):
    assert "twice" in refusal(archive("run.json", "run.json"))


def test_more_files_than_a_result_holds_are_refused(refusal):
    names = [f"reports/{number}" for number in range(RESULT_MAX_FILES + 1)]
    assert f"more than {RESULT_MAX_FILES} files" in refusal(archive(*names))


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
def test_headers_that_lengthen_the_next_name_are_refused_before_they_pile_up(refusal, kind):
    assert "no regular file" in refusal(lzma.compress(block("long", kind, b"a\0") * 3000 + block("run.json") + END))


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE])
@pytest.mark.parametrize("key", [b"comment", b"path", b"size", b"GNU.sparse.map", b"GNU.sparse.realsize"])
def test_extended_headers_are_refused(refusal, kind, key):
    assert "no regular file" in refusal(lzma.compress(extended(kind, (key, b"x")) + block("run.json") + END))


def test_a_global_header_of_many_records_is_not_held_for_each_member(refusal):
    many = extended(tarfile.XGLTYPE, *((b"%d" % number, b"") for number in range(100_000)))
    members = b"".join(block(f"reports/{number}") for number in range(100))
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "no regular file" in refusal(lzma.compress(many + members + END, preset=0))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 64 * 1024


def test_a_file_that_is_also_a_folder_is_refused(refusal):
    assert "both a file and a folder" in refusal(archive("reports", "reports/report.json"))
    assert "both a file and a folder" in refusal(archive("reports/report.json", "reports"))


def test_a_name_that_is_too_long_is_not_packed():
    with pytest.raises(IntegrityError, match="too long"):
        pack(Tree({f"reports/{'n' * 101}": b""}))


@pytest.mark.parametrize(
    ("plain", "why"),
    [
        (block("run.json"), "ends too early"),
        (block("run.json")[: tarfile.BLOCKSIZE], "ends too early"),
        (block("run.json") + END + block("spec.json"), "something follows its end"),
        (b"\0" * 100, "damaged"),
        (block("run.json").replace(b"run.json", b"run\xff\xfe\xfd\xfc\xfb"), "damaged"),
    ],
)
def test_an_archive_that_does_not_end_as_one_is_refused(refusal, plain, why):
    assert why in refusal(lzma.compress(plain))


def compressed_zeros(count_bytes):
    packer = lzma.LZMACompressor(preset=0)
    blocks = [packer.compress(bytes(1 << 20)) for _ in range(count_bytes >> 20)]
    return b"".join([*blocks, packer.flush()])


def test_a_bomb_is_refused_at_the_bound_and_takes_no_memory(refusal):
    bomb = compressed_zeros(128 << 20)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert f"more than {RESULT_MAX_BYTES} bytes" in refusal(bomb)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 96 * 1024


def test_a_header_that_asks_for_a_dictionary_of_gigabytes_is_refused(refusal):
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 20}]
    data = bytearray(lzma.compress(bytes(1000), filters=filters))
    flags = data.index(b"\x21\x01")  # the filter's id and the size of its properties: the dictionary's size follows
    data[flags + 2] = 40  # 4 GiB - 1, as the format has it
    header_end = 12 + (data[12] + 1) * 4
    data[header_end - 4 : header_end] = zlib.crc32(bytes(data[12 : header_end - 4])).to_bytes(4, "little")
    assert "Memory usage limit" in refusal(bytes(data))


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda data: data[: len(data) // 2], "ends too early"),
        (lambda data: b"", "ends too early"),
        (lambda data: b"no archive at all", "cannot be decoded"),
        (lambda data: data[:60] + bytes([data[60] ^ 255]) + data[61:], "cannot be decoded"),
        (lambda data: data + b"more", "something follows its end"),
        (lambda _: lzma.compress(b"no tar"), "archive is damaged"),
    ],
)
def test_a_damaged_file_is_refused(refusal, damage, why):
    assert why in refusal(damage(pack(TREE)))


def test_a_member_that_claims_more_than_is_there_is_refused(refusal):
    plain = bytearray(lzma.decompress(archive("run.json", data=b"y" * 2000)))
    assert "damaged" in (message := refusal(lzma.compress(bytes(plain[:1024])))) or "ends too early" in message
