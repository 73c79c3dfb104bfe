"""One line for what a run was asked to do: parameters that differ never look the same."""

from __future__ import annotations

import pytest

from bridge.records.request import Workload
from bridge.run.asked import asked_text, parameters_text
from tests.fakes.asking import make_request

BASE, HEAD = "0123456789ab" + "c" * 28, "a584764b56db" + "d" * 28


def test_preset_and_parameters_are_named_in_the_order_of_their_names() -> None:
    request = make_request("0" * 32, "digits", params={"seed": 3, "lr": 0.2, "fast": True})

    assert asked_text(request) == "digits fast=true lr=0.2 seed=3"


def test_a_request_without_parameters_is_its_preset() -> None:
    assert asked_text(make_request("0" * 32, "mlx-env-probe")) == "mlx-env-probe"


@pytest.mark.parametrize(("dirty", "head"), [(False, "head=a584764b56db"), (True, "head=a584764b56db+changes")])
def test_a_comparison_of_commits_names_both(head: str, *, dirty: bool) -> None:
    code = Workload(commit=HEAD, tree="b" * 40, origin="", dirty=dirty)
    request = make_request("0" * 32, "bench", params={"base": BASE}, workload=code)

    assert asked_text(request) == f"bench base=0123456789ab {head}"


@pytest.mark.parametrize(
    ("value", "other"), [("1", "1 "), ("a b", "a  b"), ("", " "), ("x" * 5000 + "1", "x" * 5000 + "2"), ("é", "e")]
)
def test_texts_that_differ_look_different_and_stay_on_one_short_line(value: str, other: str) -> None:
    lines = [parameters_text({"text": text}) for text in (value, other)]

    assert lines[0] != lines[1]
    assert all(len(line) < 100 and "\n" not in line for line in lines)
