"""Which of several drafters a choice means, and that all of them go back as far."""

from __future__ import annotations

from typing import Any

from engine.drafters.mtp import MtpDrafter
from engine.drafters.ngram import LONGEST_DRAFT, NgramModel
from engine.drafters.several import SeveralDrafters, several
from engine.options import asked_drafters
from engine.types import Choice


class ListedRows(MtpDrafter):
    """A head for several tokens whose arrays are lists, and which always proposes one token."""

    def _sent(self, ids: list[int]) -> Any:
        return ids

    def _joined(self, parts: list[Any]) -> Any:
        return None if parts[0] is None else [value for part in parts for value in part]

    def _normed(self, features: Any) -> Any:
        return features

    def _rows(self, ids: Any, features: Any) -> Any:
        assert len(ids) == len(features)
        return features

    def _proposed(self, hidden: Any) -> tuple[Any, Any]:
        return (1,), None

    def _crop(self, length: int) -> None:
        """Hold no rows."""

    def _begin(self, tokens: Any) -> None:
        """Compute nothing."""


def test_a_prompt_lookup_elsewhere_is_another_drafter_than_the_one_here() -> None:
    # One token before is enough for it, as it would be for none here.
    model = several([NgramModel(min_tokens=1)])
    assert asked_drafters(model) == {"ngram elsewhere": LONGEST_DRAFT}
    assert model.info.name == "ngram elsewhere or ngram"
    assert list(model.info.settings) == ["ngram elsewhere", "ngram"]
    drafters = model.open()
    drafters.observe(0, (5, 6), None)
    drafters.select(Choice(2, "ngram elsewhere"))
    assert drafters.ask(5, 2, 2).ids() == (6, 5)
    drafters.select(Choice(2, "ngram"))
    assert drafters.ask(5, 2, 2).skipped == "no match"


def test_a_head_that_goes_back_one_position_further_takes_the_others_along_once() -> None:
    drafters = SeveralDrafters({"mtp": ListedRows(None)}, NgramModel().open())
    drafters.observe(0, (5, 6, 7, 8), [0.0] * 4)
    drafters.select(Choice(1, "mtp"))
    drafters.ask(9, 4, 1)  # makes the rows of all four
    assert drafters.rewind(4) == 3
    drafters.observe(3, (8, 9), [0.0] * 2)
    assert drafters.rewind(2) == 1
    drafters.observe(1, (6,), [0.0])
