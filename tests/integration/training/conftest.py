"""Folders of the shipped models, and torch kept to one thread."""

from __future__ import annotations

from pathlib import Path

import pytest

ON_ONE_TARGET = {
    "test_transformers_own_dflash_gives_the_same_tokens_and_acceptance",
    "test_a_few_structured_prompts_are_accepted_beyond_prompt_lookup",
    "test_mlx_cached_blocks_and_single_tokens_agree_with_transformers",
    "test_transformers_cached_decode_agrees_with_its_own_full_pass",
    "test_most_of_a_few_needles_are_recalled",
}
"""Long tests that a quick run takes on the first target alone."""
ASSETS = Path(__file__).resolve().parents[3] / "engine" / "assets"
TARGETS = ("kakeya-tiny-gemma4", "kakeya-tiny-qwen3")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if getattr(item, "originalname", "") in ON_ONE_TARGET and TARGETS[0] not in item.name:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    torch.set_num_threads(1)
    return torch


@pytest.fixture(scope="session", params=TARGETS)
def target_folder(request):
    return ASSETS / request.param


@pytest.fixture(scope="session")
def target(target_folder):
    from engine.cards.loading import load_target

    return load_target(target_folder)


@pytest.fixture(scope="session")
def drafter_folder(target_folder):
    return target_folder.with_name(target_folder.name + "-dflash")


@pytest.fixture(scope="session")
def drafter(drafter_folder):
    from engine.cards.loading import load_drafter

    return load_drafter(drafter_folder)


@pytest.fixture(scope="session")
def prompt_sets():
    from engine.cards.prompts import SETS, read_set

    return {name: read_set(ASSETS / "prompts", name) for name in SETS}


@pytest.fixture(scope="session")
def held_out_ids(target):
    """Token ids of held-out needle prompts, long enough for every context length tested."""
    from engine.cards.prompts import read_set

    prompts = read_set(ASSETS / "prompts", "needle")
    texts = [prompt["text"] for prompt in prompts if prompt["id"].startswith("needle-1900")]
    return target.encode(texts[0])[:1900]
