"""The learning rate warms up, holds, and falls to its last share; stages cover the whole run."""

from __future__ import annotations

import pytest

from engine.training.network.optimiser import Schedule
from engine.training.recipe import FAMILIES, SIZES, target_config, target_recipe


def test_the_rate_rises_holds_and_falls():
    schedule = Schedule(steps=1000, warmup=40, constant_until=0.5, final=0.04)
    assert schedule.share(0) == pytest.approx(1 / 40)
    assert schedule.share(39) == schedule.share(500) == 1.0
    assert schedule.share(1000) == pytest.approx(0.04)
    falling = [schedule.share(step) for step in range(500, 1000, 50)]
    assert falling == sorted(falling, reverse=True)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_stage_takes_as_many_tokens_a_step_and_mixes_to_one(family):
    recipe = target_recipe(family, "small", 100)
    assert recipe.stages[-1].until == 1.0
    for stage in recipe.stages:
        assert stage.rows * stage.length == 2048
        mix = stage.mix
        assert mix.copy + mix.needle + mix.code + mix.structured == pytest.approx(1.0)


@pytest.mark.parametrize("size", SIZES)
def test_gemma_configs_end_in_full_attention_and_name_their_own_head_size(size):
    config = target_config("gemma4", size, 2048)
    assert config["layer_types"][-1] == "full_attention"
    assert len(config["layer_types"]) == config["num_hidden_layers"]
    assert config["global_head_dim"] != config["head_dim"]


def test_an_unknown_family_is_refused():
    with pytest.raises(KeyError):
        target_recipe("mamba", "small", 10)
