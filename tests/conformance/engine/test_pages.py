"""A pool of evicted pages: chosen by policy, bit for bit what left, and native tokens where it has room for all."""

from __future__ import annotations

import random
from typing import Any

import pytest

from engine.backends.evicting import PAGE_ROWS, EvictingRows
from engine.backends.page_store import PageFile, PageMemory, PageStore
from engine.backends.pages import PagedRows, highest
from engine.backends.rows import RowStore
from engine.backends.streaming import StreamedRows
from engine.decoding.autoregressive import autoregressive
from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.drafters.ngram import NgramModel
from engine.drafters.none import NoDrafter
from engine.errors import CacheCropError, PageError, UsageError
from engine.loading import load_backend
from engine.options import bounded
from engine.restoration.restorers import full_layers
from engine.stopping import Stopping
from engine.structure.layout import POLICIES, CacheLayout
from engine.types import Draft

torch = pytest.importorskip("torch", reason="the checkpoints are written with torch")
pytest.importorskip("mlx.core", reason="conformance needs both backends")

from engine.backends.torch import rows as torch_rows  # noqa: E402
from tests.conformance.engine.row_libraries import HEADS, RowLibrary, library  # noqa: E402
from tests.fakes import tiny_torch  # noqa: E402

DIM, ROWS, COUNT, SINK, WINDOW = 8, 4, 5, 2, 6
NAME = f"sink{SINK}+window{WINDOW}+pages{ROWS}x{COUNT}"
BUDGET = 10
KINDS = ("gemma4", "qwen3")


@pytest.fixture(params=["mlx", "torch"], scope="module")
def row_library(request: pytest.FixtureRequest) -> RowLibrary:
    return library(request.param)


@pytest.fixture(scope="module", params=["mlx", "torch"])
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, Any], Any]:
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("paged")
    backend = load_backend(request.param, device="cpu" if request.param == "torch" else None)
    targets = {kind: backend.load_target(tiny_torch.write_target(root / kind, kind)) for kind in KINDS}
    folder = tiny_torch.write_dflash(root / "dflash")
    return backend, targets, {kind: backend.load_dflash(folder, target) for kind, target in targets.items()}


def prompt_of(length: int, seed: int = 0) -> tuple[int, ...]:
    chooser = random.Random(f"{length} {seed}")
    return tuple(chooser.randrange(5, tiny_torch.VOCAB) for _ in range(length))


def drawn(row_library: RowLibrary, chooser: random.Random, rows: int, heads: int = HEADS) -> Any:
    return row_library.array([[[[chooser.gauss(0, 1) for _ in range(DIM)] for _ in range(rows)] for _ in range(heads)]])


@pytest.mark.parametrize("policy", POLICIES)
def test_rows_in_the_pool_are_those_that_left_bit_for_bit_whatever_is_cropped(
    row_library: RowLibrary, policy: str
) -> None:
    name = NAME if policy == POLICIES[0] else f"{NAME}/{policy}"
    cache = row_library.caches.make_cache(None, CacheLayout.parse(name), DIM)
    assert isinstance(cache, PagedRows)
    chooser = random.Random(policy)
    history: list[Any] = []
    for _ in range(40):
        before, rows = cache.length, chooser.randrange(1, 12)
        keys, values = drawn(row_library, chooser, rows), drawn(row_library, chooser, rows)
        visible = cache.ask(drawn(row_library, chooser, rows, 2 * HEADS), HEADS, DIM**-0.5)
        shown = row_library.append(cache, keys, values)
        pairs = zip(keys[0, 0].tolist(), values[0, 0].tolist(), strict=True)
        history = history[:before] + list(pairs)
        expected = [history[position] for begin, end in visible.runs for position in range(begin, end)]
        assert list(zip(shown[0][0, 0].tolist(), shown[1][0, 0].tolist(), strict=True)) == expected
        first, end = visible.runs[-1]
        assert end == cache.length
        assert first <= max(0, before - WINDOW + 1)
        assert len(cache.shown_pages) == min(cache.page_count, COUNT)
        cache.crop(before + chooser.randrange(rows + 1))
    assert cache.page_count > COUNT
    counts = cache.counts()
    assert counts.pool_bytes >= 2 * 4 * HEADS * DIM * ROWS * COUNT
    assert (counts.index_bytes > 0) == (policy == "codes")
    assert counts.pages_moved > COUNT
    assert counts.bytes_read == counts.pages_moved * 2 * 4 * HEADS * DIM * ROWS
    with pytest.raises(CacheCropError, match="rows older than the last append are gone"):
        cache.rewind(3)


@pytest.mark.parametrize("policy", POLICIES)
def test_pages_are_chosen_where_no_row_is_left_in_memory(row_library: RowLibrary, policy: str) -> None:
    name = "sink0+window1+pages1x17" + ("" if policy == POLICIES[0] else f"/{policy}")
    cache, chooser = row_library.caches.make_cache(None, CacheLayout.parse(name), DIM), random.Random(7)
    for _ in range(3):
        keys, values = drawn(row_library, chooser, 8), drawn(row_library, chooser, 8)
        cache.ask(drawn(row_library, chooser, 8, 2 * HEADS), HEADS, DIM**-0.5)
        row_library.append(cache, keys, values)
    assert (cache.page_count, len(cache.shown_pages)) == (16, 16)


@pytest.mark.parametrize("policy", ["codes", "recent"])
def test_queries_find_the_page_that_holds_what_they_look_for(row_library: RowLibrary, policy: str) -> None:
    name = f"sink{SINK}+window{WINDOW}+pages{ROWS}x{COUNT}" + ("" if policy == "codes" else f"/{policy}")
    cache = row_library.caches.make_cache(None, CacheLayout.parse(name), DIM)
    chooser, needle = random.Random(5), 21
    rows = drawn(row_library, chooser, 90)
    query = (8 * rows[:, :, needle : needle + 1]).tolist()
    cache.ask(rows, HEADS, DIM**-0.5)
    row_library.append(cache, rows, rows)
    cache.ask(row_library.array(query), HEADS, DIM**-0.5)
    assert ((needle - SINK) // ROWS in cache.shown_pages) == (policy != "recent")


def test_a_drafter_remembers_no_more_than_it_is_told_to(loaded: Any) -> None:
    _, targets, drafters = loaded
    model, prompt = drafters["qwen3"].bounded(24), prompt_of(200)
    sequence, sizes = targets["qwen3"].open(model.capture, CacheLayout.NATIVE), []
    (forward,) = sequence.prefill(prompt, 512)
    for each in (drafters["qwen3"], model):
        drafter = each.open()
        for start in range(0, 200, 20):
            features = sequence.committed(forward, 200)[start : start + 20]
            drafter.observe(start, prompt[start : start + 20], features)
        sizes.append(drafter.measured_bytes())
    assert sizes[1] < sizes[0] / 2
    assert model.info.settings["context_tokens"] == 24
    assert drafters["qwen3"].info.settings["context_tokens"] > 200
    with pytest.raises(UsageError, match="a drafter's context of 0 positions"):
        model.bounded(0)
    with pytest.raises(UsageError, match="--drafter-context 9 with drafter ngram; expected a DFlash drafter"):
        bounded(NgramModel(), 9)


def test_of_equal_pages_the_newer_are_chosen() -> None:
    assert highest([0.5, 0.1, 0.5, 0.5], 2) == [2, 3]
    assert highest([0.5, 0.1], 5) == [0, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_pages_on_one_layer_alone_are_every_row_of_that_layer_where_the_pool_has_room(loaded: Any, kind: str) -> None:
    backend, targets, _ = loaded
    target, prompt = targets[kind], prompt_of(150)
    layer = full_layers(target.family.structure)[-1]
    emitted, counts = [], []
    for parts in (f"+exact{layer}", f"+pages16x12+layer{layer}", "+pages16x12"):
        sequence = target.open((), CacheLayout.parse(f"sink4+window16{parts}"))
        steps = speculative(
            Parts(sequence, NoDrafter(), backend.greedy(target), FixedDepth(0), backend.clock),
            prompt,
            Stopping(BUDGET),
            33,
        )
        emitted.append([token for step in steps for token in step.tokens])
        counts.append(sequence.page_counts())
        sequence.close()
    assert emitted[0] == emitted[1]
    layers = len(full_layers(target.family.structure))
    assert layers > 1
    for name in ("pages_moved", "pool_bytes", "index_bytes", "rows_shown"):
        alone, everywhere = getattr(counts[1], name), getattr(counts[2], name)
        assert everywhere == layers * alone > 0, name


@pytest.mark.parametrize("kind", KINDS)
def test_a_pool_with_room_for_every_page_emits_native_tokens(loaded: Any, kind: str) -> None:
    backend, targets, drafters = loaded
    target, prompt = targets[kind], prompt_of(150)
    accept = backend.greedy(target)
    plain = autoregressive(target.open((), CacheLayout.NATIVE), accept, prompt, Stopping(BUDGET), 512)
    expected = [token for step in plain for token in step.tokens]
    ways = [(NgramModel(min_tokens=1), 5, 33), (drafters[kind], 7, 512)]
    for policy, (drafter, depth, chunk) in zip(("", "/recent"), ways, strict=True):
        sequence = target.open(drafter.capture, CacheLayout.parse(f"sink4+window16+pages16x12{policy}"))
        parts = Parts(sequence, drafter.open(), accept, FixedDepth(depth), backend.clock)
        steps = list(speculative(parts, prompt, Stopping(BUDGET), chunk))
        assert [token for step in steps for token in step.tokens] == expected, policy
        counts = sequence.page_counts()
        assert counts.pages_moved > 0
        assert counts.rows_shown >= 150
        assert sequence.measured_bytes() > counts.pool_bytes + counts.index_bytes > 0
        sequence.close()


@pytest.mark.parametrize("kind", KINDS)
def test_the_pages_with_most_attention_stay_and_are_not_read_again(loaded: Any, kind: str) -> None:
    backend, targets, _ = loaded
    target, prompt, accept = targets[kind], prompt_of(200), backend.greedy(targets[kind])
    read, answers = {}, {}
    for layout in ("native", "sink4+window16+stream", "sink4+window16+pages64x2+stream"):
        sequence = target.open((), CacheLayout.parse(layout))
        steps = autoregressive(sequence, accept, prompt, Stopping(BUDGET), 512)
        answers[layout] = [token for step in steps for token in step.tokens]
        read[layout] = sequence.page_counts().bytes_read
        for cache in getattr(sequence.caches, "layers", sequence.caches):
            if isinstance(cache, EvictingRows):
                assert cache.page_count == 2 == len(cache.mass)  # type: ignore[attr-defined]
                assert all(0 < share <= 1 for share in cache.mass)  # type: ignore[attr-defined]
    assert len({tuple(tokens) for tokens in answers.values()}) == 1
    assert read["native"] == 0 < 4 * read["sink4+window16+pages64x2+stream"] < read["sink4+window16+stream"]


def test_sessions_side_by_side_decode_as_each_alone(loaded: Any) -> None:
    backend, targets, _ = loaded
    target, layout = targets["qwen3"], CacheLayout.parse("sink4+window16+pages8x3")
    prompts = [prompt_of(120, seed) for seed in range(2)]

    def steps(prompt: tuple[int, ...]) -> Any:
        return autoregressive(target.open((), layout), backend.greedy(target), prompt, Stopping(BUDGET), 64)

    alone = [[step.tokens for step in steps(prompt)] for prompt in prompts]
    together = list(zip(*(steps(prompt) for prompt in prompts), strict=True))
    assert [[pair[0].tokens for pair in together], [pair[1].tokens for pair in together]] == alone


@pytest.mark.parametrize(
    ("layout", "why"),
    [
        ("sink4+window64+pages16x40", "keeps 708 rows and the target holds 512 positions"),
        ("sink4+window444+pages16x4", "keeps 512 rows and the target holds 512 positions"),
    ],
)
def test_a_pool_that_leaves_nothing_out_is_refused(loaded: Any, layout: str, why: str) -> None:
    _, targets, _ = loaded
    with pytest.raises(UsageError, match=why):
        targets["qwen3"].open((), CacheLayout.parse(layout))


def test_a_block_of_more_rows_than_the_pool_is_refused_and_one_token_is_prompt_enough(loaded: Any) -> None:
    backend, targets, _ = loaded
    sequence = targets["qwen3"].open((), CacheLayout.parse("sink4+window16+pages17x1"))
    (forward,) = sequence.prefill((7,), 512)
    assert backend.greedy(targets["qwen3"]).first(forward).tokens
    with pytest.raises(UsageError, match=r"a block of 18 rows with cache layout .*, whose pool holds 17"):
        sequence.forward_block(7, Draft((5,) * 17, 17))
    assert sequence.forward_block(7, Draft((5,) * 16, 16)).rows == 17


@pytest.mark.parametrize("make", [PageFile, PageMemory])
def test_a_cache_that_is_refused_a_store_neither_writes_to_it_nor_closes_it(make: type[PageStore]) -> None:
    store = make()

    def cache() -> StreamedRows:
        return StreamedRows(
            RowStore(torch_rows.LIBRARY), CacheLayout.parse("sink1+window2+stream"), (1, 1), lambda: store
        )

    first, second = cache(), cache()
    page = torch.ones((1, 1, PAGE_ROWS, 4))
    first._write(page, page)
    for _ in range(2):
        with pytest.raises(PageError, match="belongs to another session"):
            second._write(page, page)
    second.close()
    assert len(store.page(0)) == 2 * page.nbytes
