"""Structured completions: a header that says what follows, and the code that follows from it, with a natural end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.training.corpus import hash_byte

if TYPE_CHECKING:
    from tokenizers import Tokenizer

HELD_OUT_TEMPLATES_IN_256 = 40
LISTED_PARTS = 5


@dataclass(frozen=True)
class Names:
    """What a template is filled with: a class name, a variable name and the member words."""

    title: str
    noun: str
    members: tuple[str, ...]


@dataclass(frozen=True)
class Document:
    """One structured document: `prompt` + `completion` is the whole text, the completion ends naturally."""

    prompt: str
    completion: str
    template: str


Section = Callable[[Names], str]


def _init(n: Names) -> str:
    lines = "".join(f"        self.{m} = {m}\n" for m in n.members)
    return f"    def __init__(self, {', '.join(n.members)}):\n{lines}"


def _to_dict(n: Names) -> str:
    lines = "".join(f'            "{m}": self.{m},\n' for m in n.members)
    return f"    def to_dict(self):\n        return {{\n{lines}        }}\n"


def _from_dict(n: Names) -> str:
    lines = "".join(f'            data["{m}"],\n' for m in n.members)
    return f"    @classmethod\n    def from_dict(cls, data):\n        return cls(\n{lines}        )\n"


def _repr(n: Names) -> str:
    inner = ", ".join(f"{m}={{self.{m}!r}}" for m in n.members)
    return f'    def __repr__(self):\n        return f"{n.title}({inner})"\n'


def _eq(n: Names) -> str:
    lines = "".join(f"        if self.{m} != other.{m}:\n            return False\n" for m in n.members)
    return f"    def __eq__(self, other):\n{lines}        return True\n"


def _copy(n: Names) -> str:
    return f"    def copy(self):\n        return {n.title}({', '.join(f'self.{m}' for m in n.members)})\n"


def _update(n: Names) -> str:
    lines = "".join(f'        if "{m}" in data:\n            self.{m} = data["{m}"]\n' for m in n.members)
    return f"    def update(self, data):\n{lines}        return self\n"


def _clear(n: Names) -> str:
    return "    def clear(self):\n" + "".join(f"        self.{m} = None\n" for m in n.members)


def _check(n: Names) -> str:
    lines = "".join(
        f'        if self.{m} is None:\n            raise ValueError("{m} is missing")\n' for m in n.members
    )
    return f"    def check(self):\n{lines}        return True\n"


def _setters(n: Names) -> str:
    return "\n".join(f"    def set_{m}(self, {m}):\n        self.{m} = {m}\n" for m in n.members)


def _getters(n: Names) -> str:
    return "\n".join(f"    def get_{m}(self):\n        return self.{m}\n" for m in n.members)


CLASS_SECTIONS: dict[str, Section] = {
    "__init__": _init,
    "to_dict": _to_dict,
    "from_dict": _from_dict,
    "__repr__": _repr,
    "__eq__": _eq,
    "copy": _copy,
    "update": _update,
    "clear": _clear,
    "check": _check,
    "setters": _setters,
    "getters": _getters,
}


def _handlers(n: Names) -> str:
    return "\n\n".join(
        f'def handle_{m}(args):\n    """Handle the {m} command."""\n    return run_{n.noun}("{m}", args)\n'
        for m in n.members
    )


def _table(n: Names) -> str:
    return "HANDLERS = {\n" + "".join(f'    "{m}": handle_{m},\n' for m in n.members) + "}\n"


def _choices(n: Names) -> str:
    lines = "".join(f'    parser.add_argument("--{m}", default=None)\n' for m in n.members)
    return f"def add_arguments(parser):\n{lines}    return parser\n"


def _dispatch(n: Names) -> str:
    lines = "".join(f'    if name == "{m}":\n        return handle_{m}(args)\n' for m in n.members)
    return f"def dispatch(name, args):\n{lines}    raise KeyError(name)\n"


def _names(n: Names) -> str:
    return "NAMES = [\n" + "".join(f'    "{m}",\n' for m in n.members) + "]\n"


MODULE_SECTIONS: dict[str, Section] = {
    "handlers": _handlers,
    "table": _table,
    "arguments": _choices,
    "dispatch": _dispatch,
    "names": _names,
}


def _setup(n: Names) -> str:
    args = ", ".join(f'"{m}"' for m in n.members)
    return f"    def setUp(self):\n        self.{n.noun} = {n.title}({args})\n"


def _reads(n: Names) -> str:
    return "\n".join(
        f'    def test_{m}(self):\n        self.assertEqual(self.{n.noun}.{m}, "{m}")\n' for m in n.members
    )


def _writes(n: Names) -> str:
    return "\n".join(
        f"    def test_set_{m}(self):\n        self.{n.noun}.{m} = 1\n        self.assertEqual(self.{n.noun}.{m}, 1)\n"
        for m in n.members
    )


def _missing(n: Names) -> str:
    return "\n".join(
        f"    def test_no_{m}(self):\n"
        f"        with self.assertRaises(AttributeError):\n            del self.{n.noun}.{m}\n"
        for m in n.members
    )


TEST_SECTIONS: dict[str, Section] = {"setUp": _setup, "reads": _reads, "writes": _writes, "missing": _missing}

FAMILIES: dict[str, tuple[dict[str, Section], str, str]] = {
    "class": (
        CLASS_SECTIONS,
        "\n",
        'class {title}:\n    """Hold one {noun}: {members}.\n\n    Parts: {parts}.\n    """\n\n',
    ),
    "module": (MODULE_SECTIONS, "\n\n", '"""Commands of the {noun} tool: {members}.\n\nParts: {parts}.\n"""\n\n\n'),
    "test": (
        TEST_SECTIONS,
        "\n",
        'class Test{title}(unittest.TestCase):\n    """Test {noun}: {members}.\n\n    Parts: {parts}.\n    """\n\n',
    ),
}
LISTS = {
    "class": "\n\n    fields = ({members})\n\n",
    "module": "\n\nCOMMANDS = ({members})\n\n\n",
    "test": "\n\n    fields = ({members})\n\n",
}
FAMILY_SHARES = {"class": 0.6, "module": 0.2, "test": 0.2}


def regular_words(tokenizer: Tokenizer, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words the tokenizer holds in at most two tokens, with a leading space and without."""
    return tuple(
        word
        for word in words
        if max(len(tokenizer.encode(form, add_special_tokens=False).ids) for form in (word, " " + word)) <= 2
    )


def is_held_out_template(template: str) -> bool:
    """Say whether `template` ("family:part,part,...") is kept for evaluation; single-part templates never are."""
    return "," in template and hash_byte("template:" + template) < HELD_OUT_TEMPLATES_IN_256


def _pick_template(rng: np.random.Generator, held_out: bool, sections: int | None) -> tuple[str, tuple[str, ...]]:
    """Draw a template of the wanted side of the split.

    Raises:
        ValueError: When a held-out template of a single part is asked for.
    """
    if held_out and sections == 1:
        raise ValueError("got 1 part for a held-out template, expected at least 2: single parts are never held out")
    while True:
        family = str(rng.choice(list(FAMILY_SHARES), p=list(FAMILY_SHARES.values())))
        names = list(FAMILIES[family][0])
        count = sections if sections is not None else int(rng.integers(1, min(len(names), 7) + 1))
        if count > len(names):
            continue
        parts = tuple(names[i] for i in sorted(rng.choice(len(names), size=count, replace=False)))
        if is_held_out_template(f"{family}:{','.join(parts)}") == held_out:
            return family, parts


def make_document(
    rng: np.random.Generator,
    words: tuple[str, ...],
    *,
    held_out: bool,
    listed: bool = True,
    sections: int | None = None,
    members: int | None = None,
) -> Document:
    """Make one document from `words`.

    Args:
        rng: Source of the draws.
        words: Words for the names.
        held_out: Draw from the templates kept for evaluation instead of those for training.
        listed: Repeat the members as a tuple at the end of the header, so that every later use has a verbatim source
            with a leading space and one without.
        sections: How many parts; drawn when None.
        members: How many members; drawn when None.
    """
    if sections is None and listed:
        sections = int(rng.integers(2 if held_out else 1, LISTED_PARTS + 1))
    family, parts = _pick_template(rng, held_out, sections)
    count = members if members is not None else int(rng.integers(2, 9))
    chosen = [words[i] for i in rng.choice(len(words), size=count + 2, replace=False)]
    title = chosen[0].capitalize() + (chosen[1].capitalize() if rng.random() < 0.5 else "")
    names = Names(title, chosen[0], tuple(chosen[2:]))
    table, joint, header = FAMILIES[family]
    prompt = header.format(title=title, noun=names.noun, members=", ".join(names.members), parts=", ".join(parts))
    if listed:
        prompt = prompt.rstrip("\n") + LISTS[family].format(members=", ".join(f'"{m}"' for m in names.members))
    completion = joint.join(table[part](names) for part in parts)
    # Line breaks and the indentation after them are one token: they belong to the completion.
    bare = prompt.rstrip("\n")
    return Document(bare, prompt[len(bare) :] + completion, f"{family}:{','.join(parts)}")


def tokenizer_texts(words: tuple[str, ...], seed: int, count: int = 2000) -> list[str]:
    """Return structured documents for training the tokenizer."""
    rng = np.random.default_rng([seed, 4])
    made = [make_document(rng, words, held_out=False, listed=False) for _ in range(count)]
    return [document.prompt + document.completion for document in made]
