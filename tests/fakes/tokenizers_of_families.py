"""Tokenizers of the kinds that published models have, trained here on a few lines in nine scripts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

SCRIPTS = {
    "latin": "All human beings are born free and equal in dignity and rights. ",
    "french": "Tous les êtres humains naissent libres et égaux en dignité et en droits. ",
    "russian": "Все люди рождаются свободными и равными в своём достоинстве и правах. ",
    "chinese": "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。",
    "rare_chinese": "龘靐齉䨻𪚥𠔻㸚㵘𡿨龘靐齉䨻𪚥𠔻㸚㵘𡿨",
    "telugu": "ప్రతిపత్తిస్వత్వముల విషయమున మానవులెల్లరును జన్మతః స్వతంత్రులును సమానులును నగుదురు. ",
    "burmese": "လူတိုင်းသည်တူညီလွတ်လပ်သောဂုဏ်သိက္ခာဖြင့်လည်းကောင်းမွေးဖွားလာသူများဖြစ်သည်။",
    "amharic": "የሰው፡ልጅ፡ሁሉ፡ሲወለድ፡ነጻና፡በክብርና፡በመብትም፡እኩልነት፡ያለው፡ነው።",
    "emoji": "ok 👩‍👩‍👧‍👦 🇩🇪 1️⃣ 😀 done ",
}
"""One line each, from the Universal Declaration of Human Rights where it is a language."""
LEARNT = [SCRIPTS[name] for name in ("latin", "french", "russian", "chinese")]
"""What the tokenizers know; all else falls back to bytes."""
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
SIZE = 600


def byte_level() -> Any:
    """Return a byte-level BPE, as GPT-2's, Qwen's and Llama 3's are."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    built = Tokenizer(models.BPE())
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|endoftext|>"]
    built.train_from_iterator(
        LEARNT,
        trainers.BpeTrainer(show_progress=False, vocab_size=SIZE, initial_alphabet=alphabet, special_tokens=special),
    )
    return built


def neox() -> Any:
    """Return a byte-level BPE that begins texts with a space and adds runs of spaces as tokens, as GPT-NeoX's."""
    from tokenizers import AddedToken, pre_tokenizers

    built = byte_level()
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    built.add_tokens([AddedToken(" " * count, normalized=True) for count in (2, 4, 8)])
    return built


def byte_fallback(*, legacy: bool) -> Any:
    """Return a BPE that writes characters it does not know as bytes, as Llama 2's and Mistral's are.

    Args:
        legacy: Whether a space is put before every text by the normaliser, as before `legacy: false`.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    built = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    if legacy:
        built.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        built.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    built.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    built.train_from_iterator(
        LEARNT[:2],
        trainers.BpeTrainer(show_progress=False, vocab_size=SIZE, special_tokens=["<unk>", "<s>", "</s>", *BYTES]),
    )
    return unmarked(built)


def gemma() -> Any:
    """Return a BPE with bytes to fall back to and no space before a text, as Gemma's is."""
    from tokenizers import Tokenizer, decoders, models, normalizers, trainers

    built = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    built.normalizer = normalizers.Replace(" ", "▁")
    built.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    special = ["<pad>", "<eos>", "<bos>", "<unk>", *BYTES]
    built.train_from_iterator(LEARNT, trainers.BpeTrainer(show_progress=False, vocab_size=SIZE, special_tokens=special))
    return unmarked(built)


def unigram() -> Any:
    """Return a Unigram model with bytes to fall back to, as SentencePiece's are that are no BPE."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    pieces = sorted({character for line in LEARNT[:2] for character in line if character != " "})
    words = sorted({"▁" + word for line in LEARNT[:2] for word in line.split()})
    listed = [("<unk>", 0.0), ("▁", -3.0), *((text, -5.0) for text in pieces), *((text, -4.0) for text in words)]
    built = Tokenizer(models.Unigram([*listed, *((token, -9.0) for token in BYTES)], unk_id=0, byte_fallback=True))
    built.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    built.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="always"), decoders.Fuse()]
    )
    return built


def unmarked(built: Any) -> Any:
    """Return a tokenizer whose byte tokens are words of its model and no special tokens, as published ones are."""
    import json

    from tokenizers import Tokenizer

    description = json.loads(built.to_str())
    description["added_tokens"] = [token for token in description["added_tokens"] if token["content"] not in BYTES]
    return Tokenizer.from_str(json.dumps(description))


KINDS: dict[str, Callable[[], Any]] = {
    "byte_level": byte_level,
    "neox": neox,
    "byte_fallback_legacy": lambda: byte_fallback(legacy=True),
    "byte_fallback": lambda: byte_fallback(legacy=False),
    "gemma": gemma,
    "unigram": unigram,
}


def write_tokenizer(folder: Path, kind: str) -> Path:
    """Write the tokenizer.json of a kind into a folder and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    KINDS[kind]().save(str(folder / "tokenizer.json"))
    return folder
