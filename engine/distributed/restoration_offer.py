"""Which f_theta a host makes rows with, and the hash in which both sides agree on it before any hidden state is sent.

Its config names target and drafter by digest. The host holds the drafter and checks that; the target's side checks the
rest, as the host need not have the target's weights.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.distributed.compatibility import MOST_NAME_CHARS, MOST_SETTINGS_CHARS
from engine.distributed.kakeya.v1 import proposer_pb2 as pb
from engine.errors import ModelConfigError, ModelMismatchError
from engine.restoration.settings import LayerWidths, RestorationSettings, check_target, parse
from engine.types import TargetInfo

PROTOCOL = 1
MOST_LAYERS = 1 << 10
DIGEST_CHARS = 64


@dataclass(frozen=True, slots=True)
class RestorationOffer:
    """An f_theta as its host offers it.

    Attributes:
        name: of its folder.
        digest: sha256 in hex over its config and tensors.
        settings: of its config.
        capture: target layers whose hidden states it reads, ascending.
        hidden_size: values of one of them.
        lease_s: how long its host keeps a sequence that it hears nothing of.
    """

    name: str
    digest: str
    settings: RestorationSettings
    capture: tuple[int, ...]
    hidden_size: int
    lease_s: float

    @property
    def width(self) -> int:
        """Values that are shown of a position."""
        return len(self.capture) * self.hidden_size

    def row_width(self, layers: Sequence[int]) -> int:
        """Return how many values these layers keep of a position, keys and values together."""
        widths = [self.settings.layers[layer] for layer in layers]
        return sum(each.keys + each.values for each in widths)

    def message(self) -> pb.RestorationFacts:
        """Return what is sent of it."""
        return pb.RestorationFacts(
            protocol=PROTOCOL,
            name=self.name,
            digest=self.digest,
            config_json=json.dumps(self.settings.config(), sort_keys=True),
            capture=self.capture,
            hidden_size=self.hidden_size,
            lease_ms=int(self.lease_s * 1000),
        )

    @classmethod
    def read(cls, facts: pb.RestorationFacts) -> RestorationOffer:
        """Return what a host sent.

        Raises:
            ModelMismatchError: If it speaks another version of the protocol, or says something unusable.
        """
        if facts.protocol != PROTOCOL:
            raise ModelMismatchError(
                f"the host of the f_theta speaks version {facts.protocol} of the protocol; expected {PROTOCOL}. "
                "Install the same version of Kakeya at both ends."
            )
        unusable = _unusable(facts)
        if unusable:
            raise ModelMismatchError(
                f"the host of the f_theta says {unusable}; serve it with the same version of Kakeya"
            )
        try:
            config: Any = json.loads(facts.config_json)
            if not isinstance(config, Mapping):
                raise ModelMismatchError("the host of the f_theta sent a config that is no object")
            settings = parse(config, facts.name)
        except (ValueError, RecursionError) as error:
            raise ModelMismatchError(f"the host of the f_theta sent a config that is no JSON: {error}") from error
        except ModelConfigError as error:
            raise ModelMismatchError(f"the host of the f_theta sent a config that cannot be read: {error}") from error
        return cls(
            facts.name,
            facts.digest,
            settings,
            tuple(facts.capture),
            facts.hidden_size,
            facts.lease_ms / 1000,
        )

    def check_fits(self, target: TargetInfo, widths: Mapping[int, LayerWidths]) -> None:
        """Check that the f_theta belongs to a target whose full-attention layers have these widths.

        Raises:
            ModelMismatchError: If it was fitted on another, or reads what it has not.
        """
        check_target(self.settings, self.name, target, widths)
        if self.hidden_size != target.hidden_size or self.capture[-1] >= target.layer_count:
            raise ModelMismatchError(
                f"the host of {self.name} reads hidden states of {self.hidden_size} values up to layer "
                f"{self.capture[-1]}; {target.name!r} has {target.layer_count} layers of {target.hidden_size}"
            )

    def compatibility(self, row_format: str) -> bytes:
        """Return the hash both sides compare when a sequence begins."""
        agreed = {
            "protocol": PROTOCOL,
            "digest": self.digest,
            "config": self.settings.config(),
            "capture": list(self.capture),
            "hidden_size": self.hidden_size,
            "rows": row_format,
        }
        return hashlib.sha256(json.dumps(agreed, sort_keys=True).encode()).digest()


def _unusable(facts: pb.RestorationFacts) -> str:
    """Return what a host says that no f_theta is, empty where there is nothing."""
    if not facts.name or not facts.name.isprintable() or len(facts.name) > MOST_NAME_CHARS:
        return f"a name of {facts.name[:20]!r}, expected at most {MOST_NAME_CHARS} printable characters"
    if len(facts.digest) != DIGEST_CHARS or set(facts.digest) - set("0123456789abcdef"):
        return f"a digest of {facts.digest[:20]!r}, expected sha256 in hex"
    if len(facts.config_json) > MOST_SETTINGS_CHARS:
        return f"{len(facts.config_json)} characters of config, expected at most {MOST_SETTINGS_CHARS}"
    captured = list(facts.capture)
    if not captured or captured != sorted(set(captured)) or len(captured) > MOST_LAYERS:
        return f"layers {captured[:8]} that it reads, expected at least one, ascending"
    return ""
