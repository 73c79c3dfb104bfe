"""Whether a folder holds every expert of its layers, by the names of its tensors alone."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from engine.checkpoint import text_config, weight_files
from engine.errors import ModelWeightsError
from engine.structure.families import Config

_EXPERT = re.compile(r"(?P<layer>.*\.experts)\.(?P<number>[0-9]+)\.(?P<part>.+)")


def check_experts(folder: Path, config: Config) -> None:
    """Check that experts which lie in tensors of their own are all there; a file that cannot be read is left alone.

    Both libraries stack them when they load, and say of a lost one only that stacking failed.

    Raises:
        ModelWeightsError: If one is missing.
    """
    text = text_config(config)
    count = text.get("num_experts") or text.get("num_local_experts") or 0
    numbers_by_part: dict[tuple[str, str], set[int]] = defaultdict(set)
    for name in _tensor_names(folder):
        match = _EXPERT.fullmatch(name)
        if match is not None:
            numbers_by_part[match["layer"], match["part"]].add(int(match["number"]))
    for (layer, part), numbers in sorted(numbers_by_part.items()):
        missing = sorted(set(range(int(count))) - numbers)
        if missing:
            raise ModelWeightsError(
                f"{folder} lacks {layer}.{missing[0]}.{part} ({len(missing)} of {count} experts there); expected what "
                "its config.json describes. Fetch the weights again."
            )


def _tensor_names(folder: Path) -> list[str]:
    from safetensors import SafetensorError, safe_open

    names: list[str] = []
    for file in weight_files(folder):
        try:
            with safe_open(file, framework="np") as stream:
                names += stream.keys()
        except (OSError, SafetensorError):
            return []
    return names
