"""Which of several drafters a choice means."""

from __future__ import annotations

from engine.drafters.ngram import LONGEST_DRAFT, NgramModel
from engine.drafters.several import several
from engine.options import asked_drafters
from engine.types import Choice


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
