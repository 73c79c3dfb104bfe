"""What an f_theta's config.json and tensor names mean, and which target, drafter and layout it belongs to.

Knows no tensors. f_theta is linear: an encoder makes a few numbers of what the drafter reads at a position, a decoder a
side and layer makes of them what the layer's own projections would have given. The target then norms and rotates those
as it does its own. With the rank of its input it has no encoder, and the input itself is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.errors import ModelConfigError, ModelMismatchError, ModelWeightsError, UsageError
from engine.structure.layout import CacheLayout
from engine.types import DrafterInfo, TargetInfo

FORMAT = "kakeya-ftheta-1"
CONTEXT, DRAFTER_ROWS = "context", "drafter_rows"
INPUTS = (CONTEXT, DRAFTER_ROWS)
KL = "kl"
LOSSES = (KL, "mse", "cos_mag", "combined", "attn_distill", "attn_distill_hybrid")
"""What training may lessen: the divergence of what is said, what rows miss, what the outputs of attention miss."""
_DIGEST_SHOWN = 12


@dataclass(frozen=True, slots=True)
class LayerWidths:
    """How many values of keys and of values a layer keeps of a position."""

    keys: int
    values: int


@dataclass(frozen=True, slots=True)
class RestorationSettings:
    """A validated config.

    Attributes:
        input: ``context`` for the drafter's one vector a position, ``drafter_rows`` for the keys and values that its
            layers make of it, neither normed nor rotated.
        input_size: how many values that is.
        rank: values kept a side; the input itself where it is as large.
        layers: which layers can be restored, with their widths.
        target: name and digest of the target it was fitted on.
        drafter: name and digest of the drafter whose input it reads.
    """

    input: str
    input_size: int
    rank: int
    layers: Mapping[int, LayerWidths]
    target: tuple[str, str]
    drafter: tuple[str, str]

    @property
    def whole(self) -> bool:
        """Whether the input itself is kept."""
        return self.rank == self.input_size

    @property
    def kept(self) -> int:
        """Values kept of a position."""
        return self.input_size if self.whole else 2 * self.rank

    @property
    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor of the file by name; products are rows times matrix."""
        shapes: dict[str, tuple[int, ...]] = {} if self.whole else {"encoder": (self.input_size, 2 * self.rank)}
        for layer, widths in self.layers.items():
            shapes[f"layers.{layer}.keys"] = (self.rank, widths.keys)
            shapes[f"layers.{layer}.values"] = (self.rank, widths.values)
        return shapes

    def config(self) -> dict[str, Any]:
        """Return what config.json says."""
        return {
            "format": FORMAT,
            "input": self.input,
            "input_size": self.input_size,
            "rank": self.rank,
            "layers": {str(layer): [widths.keys, widths.values] for layer, widths in self.layers.items()},
            "target": dict(zip(("name", "digest"), self.target, strict=True)),
            "drafter": dict(zip(("name", "digest"), self.drafter, strict=True)),
        }


def parse(config: Mapping[str, Any], name: str) -> RestorationSettings:
    """Read the config of the f_theta called ``name``.

    Raises:
        ModelConfigError: If it is another file's, or a field is missing or unusable.
    """
    if config.get("format") != FORMAT:
        raise ModelConfigError(
            f"{name} has the format {config.get('format')!r}; expected {FORMAT!r}: an f_theta's folder"
        )
    if config.get("input") not in INPUTS:
        raise ModelConfigError(f"{name} reads {config.get('input')!r}; expected one of {', '.join(INPUTS)}")
    size, rank = (_count(config, key, name) for key in ("input_size", "rank"))
    if rank > size:
        raise ModelConfigError(f"{name} has rank {rank}; expected at most its input's {size} values")
    return RestorationSettings(
        input=str(config["input"]),
        input_size=size,
        rank=rank,
        layers=_layers(config, name),
        target=_bound(config, "target", name),
        drafter=_bound(config, "drafter", name),
    )


def check_fits(
    settings: RestorationSettings,
    name: str,
    pair: tuple[TargetInfo, DrafterInfo],
    input_size: int,
    widths: Mapping[int, LayerWidths],
) -> None:
    """Check that an f_theta belongs to a target and a drafter.

    Args:
        settings: Its config.
        name: Of its folder.
        pair: The target and the drafter that are loaded.
        input_size: How many values the drafter's input of that name has.
        widths: Of the target's full-attention layers.

    Raises:
        ModelMismatchError: If it was fitted on others, or for layers that are not there.
    """
    check_target(settings, name, pair[0], widths)
    check_drafter(settings, name, pair[1], input_size)


def check_drafter(settings: RestorationSettings, name: str, drafter: DrafterInfo, input_size: int) -> None:
    """Check that an f_theta reads a drafter whose input of that name has so many values.

    Raises:
        ModelMismatchError: If it was fitted on another.
    """
    _check_bound(name, "drafter", settings.drafter, drafter)
    if settings.input_size != input_size:
        raise ModelMismatchError(
            f"{name} reads {settings.input_size} values; {drafter.name!r} makes {input_size}. Fetch its config again."
        )


def check_target(
    settings: RestorationSettings, name: str, target: TargetInfo, widths: Mapping[int, LayerWidths]
) -> None:
    """Check that an f_theta belongs to a target whose full-attention layers have these widths.

    Raises:
        ModelMismatchError: If it was fitted on another, or for layers that are not there.
    """
    _check_bound(name, "target", settings.target, target)
    for layer, expected in settings.layers.items():
        if widths.get(layer) != expected:
            raise ModelMismatchError(
                f"{name} restores layer {layer} of {expected.keys} and {expected.values} values; the target's "
                f"full-attention layers are {sorted(widths)}. Fit one for it: `kakeya-engine train ftheta`."
            )


def _check_bound(name: str, role: str, bound: tuple[str, str], info: TargetInfo | DrafterInfo) -> None:
    made_for, digest = bound
    if digest != info.digest:
        raise ModelMismatchError(
            f"{name} was fitted for the {role} {made_for!r} ({digest[:_DIGEST_SHOWN]}); this is {info.name!r} "
            f"({str(info.digest)[:_DIGEST_SHOWN]}). Fit one for it: `kakeya-engine train ftheta`."
        )


def check_layout(settings: RestorationSettings | None, layout: CacheLayout, bounded: Sequence[int]) -> None:
    """Check that an f_theta, None for none, restores what a layout evicts from the layers ``bounded``.

    Raises:
        UsageError: If none is loaded, it has another rank or not all of the layers.
    """
    if layout.rank is None:
        return
    if settings is None:
        raise UsageError(
            f"cache layout {layout}: no f_theta is loaded; name its folder with --restoration, or fit one: "
            "`kakeya-engine train ftheta`"
        )
    if layout.rank and settings.rank != layout.rank:
        raise UsageError(
            f"cache layout {layout}: the f_theta that is loaded has rank {settings.rank}; expected the same"
        )
    missing = [layer for layer in bounded if layer not in settings.layers]
    if missing:
        raise UsageError(
            f"cache layout {layout}: the f_theta restores the layers {sorted(settings.layers)}, not {missing[0]}; "
            f"keep that whole with +exact{missing[0]}"
        )


def check_tensors(settings: RestorationSettings, name: str, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Check names and shapes of the file's tensors.

    Raises:
        ModelWeightsError: If they are not what the config says.
    """
    expected = settings.tensor_shapes
    wrong = sorted(key for key in expected.keys() | shapes.keys() if shapes.get(key) != expected.get(key))
    if wrong:
        raise ModelWeightsError(
            f"{name}: tensor {wrong[0]} has shape {shapes.get(wrong[0])}; its config says {expected.get(wrong[0])} "
            f"({len(wrong)} differ in all). Fetch both files again."
        )


def _count(config: Mapping[str, Any], key: str, name: str) -> int:
    value = config.get(key)
    if type(value) is not int or value < 1:
        raise ModelConfigError(f"{key} of {name} is {value!r}; expected a whole number of at least 1")
    return value


def _layers(config: Mapping[str, Any], name: str) -> dict[int, LayerWidths]:
    listed = config.get("layers")
    found: dict[int, LayerWidths] = {}
    for layer, widths in listed.items() if isinstance(listed, Mapping) else ():
        whole = isinstance(widths, list) and len(widths) == 2 and all(type(one) is int and one > 0 for one in widths)
        if not (str(layer).isascii() and str(layer).isdigit() and whole):
            raise ModelConfigError(f"layers of {name}: {layer!r} is {widths!r}; expected a number and two widths")
        found[int(layer)] = LayerWidths(*widths)
    if not found:
        raise ModelConfigError(f"layers of {name} is {listed!r}; expected an object of layers and their widths")
    return found


def _bound(config: Mapping[str, Any], key: str, name: str) -> tuple[str, str]:
    value = config.get(key)
    named = [value.get(part) for part in ("name", "digest")] if isinstance(value, Mapping) else []
    if len(named) != 2 or not all(isinstance(part, str) and part for part in named):
        raise ModelConfigError(f"{key} of {name} is {value!r}; expected an object of name and digest")
    return str(named[0]), str(named[1])
