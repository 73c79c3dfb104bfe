"""Which prompts of a packaged set a launch measures, by a rule fixed beforehand.

The rule: from the prompts whose greedy answer is known to be longer than the token budget (or not known for this
target), in file order, launch i of n measures prompts [i * per launch, (i + 1) * per launch); the warm-ups are the last
ones of the same list, so no measured prompt is ever a warm-up.

Packaged sets are packed with gzip: whoever only sends requests installs them too.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from engine.checkpoint import ASSETS
from engine.errors import PromptError, UsageError
from engine.installed_prompts import SETS, installed_set
from engine.measurement.schedule import drawn
from engine.reports import token_digest
from engine.tokenizer import Tokenizer

PACKAGED: Final = ASSETS / "prompts"
SPREAD: Final = frozenset({"needle_recall", "kv_quantisation"})
"""Kinds of report whose prompts are spread over the set."""
WHOLE: Final = frozenset({"acceptance", "distributed_e2e"})
"""Kinds that take a set from its beginning, however long its answers are; all others take those that last."""
BLOCKED: Final = frozenset({"code_throughput", "needle_recall"})
"""Kinds whose prompts are drawn into blocks, of which a launch meets one."""
SUFFIX: Final = ".json.gz"


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt, tokenised for the target. ``expected`` is the known answer, None when there is none.

    ``greedy_tokens`` is the length of the target's own greedy answer where the set records it.
    """

    id: str
    kind: str
    ids: tuple[int, ...]
    digest: str
    expected: str | None = None
    greedy_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class PromptSet:
    """A named set with the rule that chose its prompts."""

    name: str
    rule: str
    prompts: tuple[Prompt, ...]

    def lasting(self, budget_tokens: int) -> PromptSet:
        """Return the prompts whose answer is not known to end within the budget."""
        prompts = tuple(
            item for item in self.prompts if item.greedy_tokens is None or item.greedy_tokens > budget_tokens
        )
        return PromptSet(self.name, self.rule, prompts)

    def spread(self, count: int) -> PromptSet:
        """Return ``count`` prompts evenly spaced over the file, so that every length and depth in it occurs."""
        total = len(self.prompts)
        prompts = (
            self.prompts if count >= total else tuple(self.prompts[index * total // count] for index in range(count))
        )
        return PromptSet(self.name, self.rule, prompts)

    def drawn(self, count: int, nonce: str) -> PromptSet:
        """Return ``count`` prompts of those that a run's nonce draws, in its order: nobody knew them beforehand."""
        return PromptSet(
            self.name, self.rule, tuple(drawn({prompt.id: prompt for prompt in self.prompts}, nonce, "set")[:count])
        )

    def select(self, launch: int, launches: int, per_launch: int, warmups: int) -> tuple[list[Prompt], list[Prompt]]:
        """Return the measured prompts of a launch and the warm-ups.

        Raises:
            UsageError: If nothing is asked for, the set is too small or repeats a prompt.
        """
        if per_launch < 1:
            raise UsageError(f"{per_launch} prompts a launch; expected at least 1")
        needed = per_launch * launches + warmups
        if len(self.prompts) < needed:
            raise UsageError(
                f"prompt set {self.name!r} has {len(self.prompts)} usable prompts; {launches} launches of {per_launch} "
                f"and {warmups} warm-ups need {needed}"
            )
        used = [*self.prompts[: per_launch * launches], *self.prompts[len(self.prompts) - warmups :]]
        if len({prompt.digest for prompt in used}) < needed:
            raise UsageError(f"prompt set {self.name!r} repeats a prompt; expected distinct token digests")
        return used[launch * per_launch : (launch + 1) * per_launch], used[per_launch * launches :]


def chosen_of(prompts: PromptSet, kind: str, budget_tokens: int, measured: int, warmups: int) -> PromptSet:
    """Return what a study of this kind chooses of a set for so many prompts: measured ones first, warm-ups last."""
    if kind in SPREAD:
        return prompts.spread(measured + warmups)
    return prompts if kind in WHOLE else prompts.lasting(budget_tokens)


def packaged_sets() -> list[str]:
    """Return the names of the sets that come with the package."""
    return sorted(file.name.removesuffix(SUFFIX) for file in PACKAGED.glob(f"*{SUFFIX}"))


def read_packaged(name: str, folder: Path = PACKAGED) -> bytes:
    """Return the JSON of a packaged set.

    Raises:
        OSError: there is no such set, or its file is not what gzip makes.
    """
    return gzip.decompress((folder / f"{name}{SUFFIX}").read_bytes())


def write_packaged(name: str, raw: bytes, folder: Path) -> None:
    """Write the JSON of a packaged set; no time of day goes into the file."""
    (folder / f"{name}{SUFFIX}").write_bytes(gzip.compress(raw, mtime=0))


def load_prompts(name_or_path: str, tokenizer: Tokenizer, target: str) -> PromptSet:
    """Load a set by name from the package or by path, and check its pinned token digests.

    Raises:
        UsageError: If there is no such set, or its file is none.
        PromptError: If a prompt tokenises to other ids than the set pins for ``target``.
    """
    data = _read_set(name_or_path)
    prompts = []
    for row in data["prompts"]:
        ids = tokenizer.encode(row["text"])
        digest = token_digest(ids)
        pinned = row.get("token_digest", {}).get(target)
        if pinned is not None and pinned != digest:
            raise PromptError(
                f"prompt {row['id']} of {data['set']!r} tokenises to {digest[:12]}…; the set pins {pinned[:12]}… for "
                f"{target}. The tokenizer or the set was changed."
            )
        greedy_tokens = row.get("greedy_tokens", {}).get(target)
        prompts.append(Prompt(row["id"], row["kind"], ids, digest, row.get("expected"), greedy_tokens))
    return PromptSet(data["set"], data["rule"], tuple(prompts))


def load_hosts_own(requested: str | None, named: str, tokenizer: Tokenizer, target: str) -> PromptSet:
    """Load the set that the host asks for, else the packaged one that a report names.

    A file that a report names is its author's: whoever may choose the set may choose the prompts.

    Raises:
        UsageError: If the host asks for none and the report names none that is packaged.
        PromptError: As of `load_prompts`.
    """
    if requested is None and named not in {*packaged_sets(), *SETS}:
        names = ", ".join([*packaged_sets(), *SETS])
        raise UsageError(
            f"the report names the prompt set {named!r}; expected a packaged one: {names}, or `--set FILE`"
        )
    return load_prompts(requested or named, tokenizer, target)


def _read_set(name_or_path: str) -> dict[str, Any]:
    """Return a set as it is written.

    Raises:
        UsageError: If there is none, or it is no JSON object of a set with prompts.
    """
    if name_or_path in SETS:
        return installed_set(name_or_path)
    path, packaged = Path(name_or_path), packaged_sets()
    if name_or_path not in packaged and not path.is_file():
        listed = ", ".join([*packaged, *SETS])
        raise UsageError(f"no prompt set {name_or_path!r}; known: {listed}, or give a file")
    try:
        data = json.loads(read_packaged(name_or_path) if name_or_path in packaged else path.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the prompt set {path}: {error}") from error
    rows = data.get("prompts") if isinstance(data, dict) else None
    if not isinstance(rows, list) or not all(isinstance(data.get(name), str) for name in ("set", "rule")):
        raise UsageError(f"{path} is no prompt set; expected a JSON object with set, rule and a list of prompts")
    for row in rows:
        if not isinstance(row, dict) or not all(isinstance(row.get(name), str) for name in ("id", "kind", "text")):
            raise UsageError(f"{path} holds a prompt without id, kind and text: {str(row)[:80]}")
    if not rows:
        raise UsageError(f"{path} holds no prompts; expected at least one")
    return data


def answered(prompt: Prompt, text: str) -> bool:
    """Say whether the answer's first line holds the expected value as a whole word."""
    first = text.strip().split("\n", 1)[0]
    words = {word.strip(".,;:!?'\"()") for word in first.split()}
    return prompt.expected in words
