"""Chat turns as text, through the templates that come with a model folder.

Knows every place in which the hub keeps them, and nothing of tokens. transformers renders, in its sandbox and with the
functions that published templates call, so that a turn reads here as it does there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from engine.checkpoint import TOKENIZER_CONFIG as CONFIG
from engine.checkpoint import named_tokens, read_object, tokenizer_settings
from engine.errors import ModelConfigError, UsageError

DEFAULT = "default"
TOOL_USE = "tool_use"
"""What publishers call a template of its own for conversations with tools."""
FILE = "chat_template.jinja"
MORE = "additional_chat_templates"
LEGACY = "chat_template.json"
THINKING = "enable_thinking"
CLOCK = "strftime_now"
"""What templates call for the date."""
CLOCK_CALL = re.compile(rf"{CLOCK}\(\s*(?P<quote>['\"])(?P<format>[^'\"]*)(?P=quote)\s*\)")
"""How they call it; transformers hands a template nothing that could be called in its place."""
GENERATION = re.compile(r"\{%[-+]?\s*(?:end)?generation\s*[-+]?%\}")
"""A pair of tags of transformers' own, around what a model says."""
OWN_ARGUMENTS = frozenset({"messages", "add_generation_prompt", "bos_token", "eos_token", "raise_exception", CLOCK})
"""What a template reads and no request says."""

Message = Mapping[str, Any]
"""One turn: ``role`` and ``content``, and whatever else the template reads."""


class UnreadArgumentError(UsageError):
    """Report an argument that a template does not read.

    Attributes:
        argument: its name.
    """

    def __init__(self, folder: Path, argument: str) -> None:
        super().__init__(f"the chat template of {folder} does not read {argument!r}; leave this argument out")
        self.argument = argument


def chat_templates(folder: Path) -> dict[str, str]:
    """Return the templates of a folder by name, the usual one under ``default``.

    Files of their own come before tokenizer_config.json, as in transformers, and chat_template.json comes last. The
    later ones are read only where no usual one was found.

    Raises:
        ModelConfigError: If one cannot be read.
    """
    files = {path.stem: path for path in sorted((folder / MORE).glob("*.jinja"))}
    if (folder / FILE).is_file():
        files[DEFAULT] = folder / FILE
    templates = {name: _text(path) for name, path in files.items()}
    for path in (folder / CONFIG, folder / LEGACY):
        if DEFAULT not in templates and path.is_file():
            templates = _listed(read_object(path).get("chat_template"), path) | templates
    return templates


def read_names(source: str) -> frozenset[str]:
    """Return what a template reads of what it is handed, by name; nothing of one that cannot be read.

    A field of a message or a word of a text is no argument, whatever it is called: gpt-oss's templates read
    ``message.thinking`` and know no such switch.
    """
    from jinja2 import TemplateError, meta
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(extensions=["jinja2.ext.loopcontrols"])
    # No sum is worked out in advance, so a template of large numbers costs nothing here.
    environment.intercepted_binops = frozenset(environment.default_binop_table)
    try:
        return frozenset(meta.find_undeclared_variables(environment.parse(GENERATION.sub("", source))))
    except (TemplateError, RecursionError):
        return frozenset()  # whoever renders it says what is wrong


def render_chat(
    folder: Path,
    messages: Sequence[Message],
    *,
    template: str | None = None,
    thinking: bool | None = None,
    arguments: Mapping[str, Any] | None = None,
    day: date | None = None,
) -> str:
    """Return a conversation as text that ends where the model's answer begins.

    Args:
        folder: The model's.
        messages: The turns so far, the newest last.
        template: Name of the template; None for the default one, or the only one, and with tools for the one that the
            folder has for them.
        thinking: Whether the model is to think before it answers; None leaves that to the template.
        arguments: What else the template reads, such as ``reasoning_effort`` or ``tools``.
        day: The date that it may write into the prompt; None for today.

    Raises:
        ModelConfigError: If the folder has no template, or one that cannot be rendered.
        UsageError: If it has none of that name, or one that does not read what it is told.
    """
    from jinja2 import TemplateError
    from transformers.utils.chat_template_utils import render_jinja_template

    name, source = _chosen(folder, template, with_tools=(arguments or {}).get("tools") is not None)
    # A template that writes a token the folder does not name writes nothing.
    values: dict[str, Any] = {"bos_token": "", "eos_token": "", **named_tokens(tokenizer_settings(folder))}
    names = read_names(source)
    if thinking is not None:
        name_of_it = next((name for name in (THINKING, "thinking") if name in names), None)
        if name_of_it is None:
            raise UsageError(f"the chat template of {folder} does not read {THINKING}; leave --thinking out")
        values[name_of_it] = thinking
    for argument, value in (arguments or {}).items():
        if argument not in names or argument in OWN_ARGUMENTS:
            raise UnreadArgumentError(folder, argument)
        values[argument] = value
    if day is not None:
        if CLOCK not in source:
            raise UsageError(f"the chat template of {folder} writes no date; leave --date out")
        source = CLOCK_CALL.sub(lambda call: json.dumps(day.strftime(call["format"])), source)
        if f"{CLOCK}(" in source:
            raise UsageError(
                f"the chat template of {folder} works out how it writes the date, so another day cannot be put in its "
                "place; leave --date out"
            )
    tools = values.pop("tools", None)
    try:
        rendered = render_jinja_template(
            [[dict(message) for message in messages]],
            chat_template=source,
            tools=tools,
            add_generation_prompt=True,
            **values,
        )
    except (
        TemplateError,
        ArithmeticError,
        AttributeError,
        ImportError,
        LookupError,
        TypeError,
        ValueError,
        RecursionError,
    ) as error:
        cause = " ".join(str(error).split())
        if type(error) is TemplateError:
            # What a template says itself by raise_exception: it is whole, and takes no such conversation.
            raise ModelConfigError(
                f"chat template {name!r} of {folder} refuses this conversation: {cause}. Leave out what it does not "
                "take, such as a system message"
            ) from error
        raise ModelConfigError(
            f"chat template {name!r} of {folder} cannot be rendered: {cause}; fetch the folder's templates again, or "
            "complete raw text instead of a chat turn"
        ) from error
    texts = rendered[0] if isinstance(rendered, tuple) else rendered
    return str(texts[0])


def _chosen(folder: Path, name: str | None, *, with_tools: bool) -> tuple[str, str]:
    """Return a template by name: that for tools, the default one, or the only one, where none is asked for."""
    templates = chat_templates(folder)
    if not templates:
        raise ModelConfigError(
            f"no chat template in {folder}: looked in {FILE}, {MORE}/, {CONFIG} and {LEGACY}; complete raw text "
            "instead of a chat turn"
        )
    usual = DEFAULT if len(templates) > 1 else next(iter(templates))
    chosen = name or (TOOL_USE if with_tools and TOOL_USE in templates else usual)
    if chosen not in templates:
        raise UsageError(
            f"no chat template {chosen!r} in {folder}; it has {', '.join(sorted(templates))}. Name one with "
            "--chat-template"
        )
    return chosen, templates[chosen]


def _listed(value: Any, path: Path) -> dict[str, str]:
    """Return the templates of a JSON file: one text, a list of named ones, or an object of them."""
    if value is None:
        return {}
    if isinstance(value, str):
        return {DEFAULT: value}
    if isinstance(value, list) and all(isinstance(item, Mapping) for item in value):
        value = {item.get("name"): item.get("template") for item in value}
    if not isinstance(value, Mapping) or not all(isinstance(part, str) for item in value.items() for part in item):
        raise ModelConfigError(f"chat_template in {path} is no text and no list of objects with name and template")
    return dict(value)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelConfigError(f"cannot read {path}: {error}; fetch the file again") from error
