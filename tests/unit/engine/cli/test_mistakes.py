"""What people get wrong with `kakeya-engine`: one line with what was wrong and what to do, and the exit code."""

from __future__ import annotations

import shlex

import pytest

from engine.cli.main import main

MISTAKES = [
    ("genrate hi", 2, "unknown verb 'genrate'; did you mean generate?", "kakeya-engine --help"),
    ("quantise x", 2, "unknown verb 'quantise'; known: assets, inspect, models, generate", "kakeya-engine --help"),
    ("generate ''", 2, "the prompt is empty", "expected at least one character"),
    ("generate hi --backend jax", 2, "argument --backend: invalid choice: 'jax'", "see kakeya-engine generate --help"),
    ("generate hi --max-new 0", 2, "argument --max-new: '0'; expected at least 1", "generate --help"),
    ("generate hi --max-new -1", 2, "argument --max-new: '-1'", "generate --help"),
    ("generate hi --dtype float8", 2, "argument --dtype: invalid choice: 'float8'", "generate --help"),
    ("generate hi --depth many", 2, "--depth 'many'; expected a number of tokens, or auto", ""),
    ("generate hi --cache nosuch", 2, "cache layout 'nosuch'; expected native, full, affine8", "+stream"),
    ("generate hi --restoration EMPTY", 2, "--cache native restores nothing", "expected one with +fthetaRANK"),
    ("inspect nosuch", 3, "no model 'nosuch': looked for config.json in", "set KAKEYA_MODEL_ROOTS"),
    ("inspect EMPTY", 3, "empty': looked for config.json in", "Put the folder there"),
    ("inspect HALF", 3, "num_hidden_layers is None for model type 'qwen3'", "expected a whole number"),
    ("inspect BROKEN", 3, "cannot read", "expected a JSON object"),
    ("inspect GGUF", 3, "is a file; expected a folder with a config.json", "models add FILE` makes one"),
    ("inspect", 2, "the following arguments are required: folder", "kakeya-engine inspect --help"),
    ("score hi --context 0", 2, "argument --context: '0'; expected at least 1", "score --help"),
    ("serve", 2, "the following arguments are required: --openai", "serve --help"),
    ("serve --openai nowhere", 2, "--openai 'nowhere'; expected 127.0.0.1:PORT", "ssh -L"),
    ("serve --openai 0.0.0.0:80", 2, "--openai '0.0.0.0:80'; expected 127.0.0.1:PORT", "ssh -L"),
    ("eval nosuch", 2, "unknown workload 'nosuch'; known: code, needle", ""),
    ("eval code --prompts x", 2, "unrecognized arguments: --prompts x", "see kakeya-engine eval code --help"),
    ("bench compare --depths ²", 2, "--depth '²'; expected a number of tokens, or auto", ""),
    ("bench compare --out GGUF", 2, "model.gguf is a file", "expected a folder for reports"),
    ("bench controller --prompts 1", 2, "one prompt says nothing about others", "expected at least 2"),
    ("bench controller --worlds own,own", 2, "--worlds 'own,own'; expected some of plain,useless", "each once"),
    ("eval single-graph --limit-s inf", 2, "argument --limit-s: 'inf'; expected a number from 0", "--help"),
    ("probe jax", 2, "argument backend: invalid choice: 'jax'", "probe --help"),
    ("convert onnx a b", 2, "argument format: invalid choice: 'onnx'", "convert --help"),
    ("convert mlx a b --type q8_0", 2, "--type is a choice for gguf, and mlx is written", "leave it out"),
    ("convert gguf a b --group-size 32", 2, "--group-size is a choice for mlx, and gguf is written", "leave it out"),
    ("train", 2, "the following arguments are required: verb", "train --help"),
    ("models add", 2, "the following arguments are required: source", "see kakeya-engine models add --help"),
    ("models add GGUF", 3, "is GGUF of version", "expected 2 or 3"),
    ("models add WHEEL", 3, "is not named as a wheel is", "expected NAME-VERSION"),
    ("models add BROKENWHEEL", 3, "cannot read the wheel", "fetch it again"),
    ("models add nosuch", 3, "no such file or folder, no installed distribution", "nothing is downloaded"),
    ("models add EMPTY", 3, "no config.json in", "expected a model folder"),
    ("models remove nosuch", 2, "no model 'nosuch' was added", "it has none"),
    ("assets add GGUF", 3, "cannot be read as an archive", "expected kakeya-assets-VERSION.tar.gz"),
]


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Return folders and files that are no models, by the word that stands for each."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KAKEYA_MODEL_ROOTS", raising=False)
    places = {name: tmp_path / name.lower() for name in ("EMPTY", "HALF", "BROKEN")}
    for folder, text in zip(places.values(), (None, '{"model_type": "qwen3"}', "{"), strict=True):
        folder.mkdir()
        if text is not None:
            (folder / "config.json").write_text(text)
    files = {"GGUF": "model.gguf", "WHEEL": "no.whl", "BROKENWHEEL": "model-1.0-py3-none-any.whl"}
    for word, name in files.items():
        places[word] = tmp_path / name
        places[word].write_bytes(b"GGUFxxxx")
    return places


@pytest.mark.parametrize(("words", "code", "message", "remedy"), MISTAKES, ids=[words for words, *_ in MISTAKES])
def test_a_mistake_is_one_line_with_what_was_wrong_and_what_to_do(places, capsys, words, code, message, remedy):
    try:
        ended = main([str(places.get(word, word)) for word in shlex.split(words)])
    except SystemExit as error:
        ended = error.code
    printed = capsys.readouterr()
    assert (ended, message in printed.err, remedy in printed.err) == (code, True, True), printed.err
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1, printed.err
