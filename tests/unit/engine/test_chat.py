"""Chat templates are found in every place of the hub and read as transformers reads them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from engine.chat import chat_templates, read_names, render_chat
from engine.errors import ModelConfigError, UsageError
from engine.tokenizer import Tokenizer

PLAIN = "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{{ eos_token }}\n{% endfor %}<model>"
THINKING = """{%- set ns = namespace(system=false) -%}
{%- for message in messages %}
    {%- if message.role == 'system' %}{% set ns.system = true %}{% endif %}
    {%- if message.role not in ['system', 'user', 'assistant'] %}{{ raise_exception('no such role') }}{% endif %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{% endif %}
{%- endif %}"""
TALK = [
    {"role": "user", "content": " hi <b> "},
    {"role": "assistant", "content": "yes"},
    {"role": "user", "content": "so"},
]


def config(folder: Path, template: Any) -> None:
    beginning = {"__type": "AddedToken", "content": "<s>", "special": True}
    tokens = {"bos_token": beginning, "eos_token": "</s>", "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template, **tokens}))


def written(ids: tuple[int, ...]) -> str:
    """Return the text of ids: of letters, and of the two tokens that ``config`` names, added behind them."""
    return "".join([*map(chr, range(128)), "<s>", "</s>"][index] for index in ids)


def as_file(folder: Path, template: str) -> None:
    config(folder, "not this one")
    (folder / "chat_template.jinja").write_text(template)


def as_legacy(folder: Path, template: str) -> None:
    config(folder, None)
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": template}))


def as_list(folder: Path, template: str) -> None:
    named = {"default": template, "tool_use": "tools {{ messages[0].content }}"}
    config(folder, [{"name": name, "template": text} for name, text in named.items()])


def as_more(folder: Path, template: str) -> None:
    as_file(folder, template)
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("tools {{ messages[0].content }}")


PLACES: dict[str, Callable[[Path, str], None]] = {
    "text": config,
    "file": as_file,
    "legacy": as_legacy,
    "list": as_list,
    "more": as_more,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    from tokenizers import Tokenizer as Implementation
    from tokenizers import models, pre_tokenizers

    letters = [chr(code) for code in range(128)]
    tokenizer = Implementation(models.WordLevel({text: index for index, text in enumerate(letters)}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


@pytest.mark.parametrize("place", PLACES)
def test_a_template_is_found_in_every_place_and_read_as_stock_reads_it(folder: Path, place: str) -> None:
    PLACES[place](folder, PLAIN)
    rendered = render_chat(folder, TALK)
    assert rendered == "<s><user>hi <b></s>\n<assistant>yes</s>\n<user>so</s>\n<model>"
    if place != "legacy":  # transformers reads that place with processors alone
        from transformers import AutoTokenizer

        stock = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        assert stock.apply_chat_template(TALK, tokenize=False, add_generation_prompt=True) == rendered
    if place in {"list", "more"}:
        assert render_chat(folder, TALK, template="tool_use") == "tools  hi <b> "
        with pytest.raises(UsageError, match=r"no chat template 'rag'.*it has default, tool_use"):
            render_chat(folder, TALK, template="rag")
    ids = Tokenizer(folder).chat(TALK)
    assert written(ids) == rendered


def test_a_trainers_length_in_the_tokenizer_neither_cuts_nor_pads_a_prompt(folder: Path) -> None:
    from tokenizers import Tokenizer as Implementation
    from transformers import AutoTokenizer

    config(folder, PLAIN)
    trained = Implementation.from_file(str(folder / "tokenizer.json"))
    trained.enable_truncation(max_length=4)
    trained.enable_padding(length=40, pad_id=63, pad_token="?")
    trained.save(str(folder / "tokenizer.json"))
    tokenizer, stock = Tokenizer(folder), AutoTokenizer.from_pretrained(folder, local_files_only=True)
    assert written(tokenizer.chat(TALK)) == render_chat(folder, TALK)
    for text in ("a", "a longer text"):
        ids = tokenizer.encode(text)
        assert written(ids) == text
        assert list(ids) == stock.encode(text)


def test_thinking_is_told_to_a_template_that_knows_it(folder: Path) -> None:
    config(folder, THINKING)
    turn = TALK[:1]
    usual, on, off = (render_chat(folder, turn, thinking=thinking) for thinking in (None, True, False))
    assert usual == on == "<|im_start|>user\n hi <b> <|im_end|>\n<|im_start|>assistant\n"
    assert off == on + "<think>\n\n</think>\n\n"
    config(folder, PLAIN)
    with pytest.raises(UsageError, match="does not read enable_thinking"):
        render_chat(folder, turn, thinking=False)


def test_what_else_a_template_reads_is_told_and_pinned(folder: Path) -> None:
    words = "{{ reasoning_effort }} {{ thinking }} {{ tools }} {{ messages | length }}"
    config(folder, "{{ strftime_now('%Y-%m-%d') }} " + words)
    arguments = {"reasoning_effort": "high", "tools": [{"name": "f"}]}
    rendered = render_chat(folder, TALK, thinking=True, arguments=arguments, day=date(2026, 1, 31))
    assert rendered == "2026-01-31 high True [{'name': 'f'}] 3"
    assert render_chat(folder, TALK, day=date(2026, 2, 1)).startswith("2026-02-01 ")
    for wrong in ({"effort": 1}, {"messages": []}):
        with pytest.raises(UsageError, match="does not read"):
            render_chat(folder, TALK, arguments=wrong)
    config(folder, PLAIN)
    with pytest.raises(UsageError, match="writes no date"):
        render_chat(folder, TALK, day=date(2026, 1, 31))


def test_a_date_that_a_template_writes_in_a_form_of_its_own_is_refused_and_never_left_at_today(folder: Path) -> None:
    config(folder, "{% set form = '%Y' %}{{ strftime_now(form) }} {{ strftime_now('%Y-%m-%d') }}")
    assert render_chat(folder, TALK)[4] == " "
    with pytest.raises(UsageError, match="works out how it writes the date"):
        render_chat(folder, TALK, day=date(2026, 1, 31))
    config(folder, "{% if strftime_now is defined %}{{ strftime_now('%Y') }}{% endif %}")
    assert render_chat(folder, TALK, day=date(1999, 1, 31)) == "1999"


def test_tools_are_told_to_the_template_that_a_folder_has_for_them(folder: Path) -> None:
    from transformers import AutoTokenizer

    named = {"default": PLAIN, "tool_use": "{{ tools | length }}{{ messages[0].content }}"}
    config(folder, [{"name": name, "template": text} for name, text in named.items()])
    tools = [{"type": "function", "function": {"name": "f"}}]
    stock = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    expected = stock.apply_chat_template(TALK, tools=tools, tokenize=False, add_generation_prompt=True)
    assert render_chat(folder, TALK, arguments={"tools": tools}) == expected == "1 hi <b> "
    with pytest.raises(UsageError, match="does not read 'tools'"):
        render_chat(folder, TALK, template="default", arguments={"tools": tools})


def test_a_field_of_a_message_and_a_name_of_jinja_are_no_arguments(folder: Path) -> None:
    thought = "{% generation %}{% if 'thinking' in m %}{{ m.thinking }}{% endif %}{% endgeneration %}"
    turns = f"{{% for m in messages %}}{thought}{{{{ m.content }}}}{{% endfor %}}"
    config(folder, turns + "{{ 2 * 3 }}{% if range %}{{ reasoning_effort }}{% endif %}")
    assert render_chat(folder, TALK[:1], arguments={"reasoning_effort": "low"}) == " hi <b> 6low"
    with pytest.raises(UsageError, match="does not read enable_thinking"):
        render_chat(folder, TALK, thinking=False)
    for name in ("thinking", "content", "range", "raise_exception"):
        with pytest.raises(UsageError, match=f"does not read '{name}'"):
            render_chat(folder, TALK, arguments={name: "x"})


def test_a_name_that_a_template_sets_where_nobody_said_it_is_an_argument() -> None:
    chosen = "{% if custom_tools is defined %}{% set tools = custom_tools %}{% endif %}"
    unsaid = "{% if not tools is defined %}{% set tools = none %}{% endif %}{% set own = 1 %}{{ tools }}{{ own }}"
    assert read_names(chosen + unsaid) == {"custom_tools", "tools"}
    assert read_names("{% if not thinking is defined %}{% set thinking = false %}{% endif %}") == {"thinking"}
    assert read_names("{% for %}") == frozenset()


def test_several_templates_without_a_default_one_have_to_be_named(folder: Path) -> None:
    config(folder, {"a": "A", "b": "B"})
    with pytest.raises(UsageError, match=r"no chat template 'default'.*it has a, b"):
        render_chat(folder, TALK)
    assert render_chat(folder, TALK, template="b") == "B"


def test_templates_for_other_uses_leave_the_usual_one_in_its_place(folder: Path) -> None:
    config(folder, PLAIN)
    usual = render_chat(folder, TALK)
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "rag.jinja").write_text("documents")
    assert render_chat(folder, TALK) == usual
    assert render_chat(folder, TALK, template="rag") == "documents"


BROKEN = {
    "syntax": ("{% for %}", "cannot be rendered"),
    "a function that is not there": ("{{ nowhere(1) }}", "'nowhere' is undefined"),
    "its own objection": (
        "{{ raise_exception('no such role') }}",
        "refuses this conversation: no such role. Leave out what it does not take, such as a system message",
    ),
    "a way out of the sandbox": ("{{ ''.__class__.__mro__ }}", "unsafe"),
    "arithmetic": ("{{ 1 // 0 }}", "cannot be rendered"),
    "a range without an end": ("{% for i in range(10 ** 12) %}{% endfor %}", "cannot be rendered"),
    "an objection of two lines": ("{{ raise_exception('no\nsuch role') }}", "no such role"),
    "no text": (7, "is no text and no list"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_template_is_one_error_that_names_the_folder(folder: Path, fault: str) -> None:
    template, message = BROKEN[fault]
    config(folder, template)
    with pytest.raises(ModelConfigError, match=message) as caught:
        render_chat(folder, TALK)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_a_template_every_place_that_was_looked_in_is_named(folder: Path) -> None:
    assert chat_templates(folder) == {}
    with pytest.raises(
        ModelConfigError, match=r"chat_template\.jinja, additional_chat_templates/, tokenizer_config\.json"
    ):
        render_chat(folder, TALK)
