"""The closed form finds the map there is, the best of a rank, and says what it misses on other contexts."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="f_thetas are fitted with torch")

from engine.errors import UsageError  # noqa: E402
from engine.restoration.fitting import Sums, fitted, whole_maps  # noqa: E402
from engine.restoration.settings import LayerWidths, RestorationSettings  # noqa: E402
from engine.restoration.training import check_rank  # noqa: E402

SIZE, WIDTH, LAYERS = 12, 6, (0, 3)
SETTINGS = RestorationSettings(
    "context", SIZE, SIZE, dict.fromkeys(LAYERS, LayerWidths(WIDTH, WIDTH)), ("t", "1" * 64), ("d", "2" * 64)
)


def maps_of(rank: int) -> dict[tuple[int, str], torch.Tensor]:
    """Return maps that share one encoder a side of so many columns."""
    drawn = torch.Generator().manual_seed(1)
    encoders = {side: torch.randn((SIZE, rank), generator=drawn) for side in ("keys", "values")}
    sides = [(layer, side) for layer in LAYERS for side in ("keys", "values")]
    return {side: encoders[side[1]] @ torch.randn((rank, WIDTH), generator=drawn) for side in sides}


def summed(maps: dict[tuple[int, str], torch.Tensor], seed: int, noise: float = 0.0) -> Sums:
    """Return the sums of three contexts of rows that maps make, with noise beside."""
    drawn, sums = torch.Generator().manual_seed(seed), Sums()
    for _ in range(3):
        given = torch.randn((80, SIZE), generator=drawn)
        rows = {side: given @ matrix for side, matrix in maps.items()}
        sums.add(given, {side: row + noise * torch.randn(row.shape, generator=drawn) for side, row in rows.items()})
    return sums


@pytest.mark.parametrize("rank", [3, SIZE])
def test_rows_that_a_map_of_the_rank_makes_are_found_again(rank: int) -> None:
    settings, maps = replace(SETTINGS, rank=rank), maps_of(min(rank, 5))
    tensors = fitted(summed(maps, seed=1), settings)
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == settings.tensor_shapes
    missed = summed(maps, seed=2).errors(whole_maps(tensors, settings))
    assert missed.keys() == maps.keys()
    # Ridge takes a thousandth of every row.
    assert all(0 <= error < 1e-5 for error in missed.values())


def test_a_smaller_rank_misses_more_and_noise_is_missed_by_all() -> None:
    training, other = summed(maps_of(5), seed=1, noise=0.5), summed(maps_of(5), seed=2, noise=0.5)
    means = []
    for rank in (1, 3, 5, SIZE):
        settings = replace(SETTINGS, rank=rank)
        missed = other.errors(whole_maps(fitted(training, settings), settings)).values()
        means.append(sum(missed) / len(missed))
    assert means[0] > 10 * means[2]
    assert means[1] > 10 * means[2]
    assert 0.002 < means[2] < 0.02
    assert 0.002 < means[3] < 0.02


def test_sums_that_were_written_down_go_on_as_if_nothing_had_happened(tmp_path) -> None:
    whole, part = summed(maps_of(5), seed=1), Sums()
    drawn = torch.Generator().manual_seed(1)
    for _ in range(3):
        given = torch.randn((80, SIZE), generator=drawn)
        rows = {side: given @ matrix for side, matrix in maps_of(5).items()}
        for row in rows.values():
            torch.randn(row.shape, generator=drawn)
        torch.save(part.state(), tmp_path / "sums.pt")
        part = Sums.of_state(torch.load(tmp_path / "sums.pt", weights_only=True)) if part.episodes else part
        part.add(given, rows)
    assert part.episodes == whole.episodes == 3
    resumed, other = (fitted(sums, replace(SETTINGS, rank=4)) for sums in (part, whole))
    assert all(torch.equal(resumed[name], other[name]) for name in resumed)


def test_a_rank_is_that_of_the_input_or_no_larger_than_the_rows_that_are_made() -> None:
    narrow = replace(SETTINGS, layers=dict.fromkeys(LAYERS, LayerWidths(5, 4)))
    assert [check_rank(rank, narrow) for rank in (1, 8, SIZE)] == [1, 8, SIZE]
    for rank in (0, 9, SIZE - 1, SIZE + 1):
        with pytest.raises(UsageError, match=f"rank {rank}; expected at most 8, or {SIZE}, all values of the context"):
            check_rank(rank, narrow)


def test_a_target_that_keeps_no_whole_layer_has_nothing_to_fit() -> None:
    with pytest.raises(UsageError, match="no full-attention layer"):
        check_rank(1, replace(SETTINGS, layers={}))
