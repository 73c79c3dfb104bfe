"""The base of all records and the field types they share.

Strict: no coercion, no unknown field. Frozen: a changed record is a new record.
"""

import datetime as dt
import re
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from bridge import strictjson
from bridge.ids import ID_PATTERN, MOMENT_PATTERN
from bridge.limits import TEXT_MAX_CHARS

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_HALVES: Final = re.compile("[\ud800-\udfff]")  # of characters: JSON may name them, and no UTF-8 holds one
_MOMENT: Final = re.compile(MOMENT_PATTERN)


def _moment(text: str) -> str:
    if _MOMENT.fullmatch(text) is None:
        raise ValueError("expected an RFC 3339 time in UTC, ending in Z")
    dt.datetime.fromisoformat(text)
    return text


def _no_controls(text: str) -> str:
    if _CONTROL.search(text):
        raise ValueError("control characters are not allowed")
    return text


def is_text(text: str) -> bool:
    """Return whether a field of a record may hold a text: one line of whole characters, without controls, bounded."""
    return len(text) <= TEXT_MAX_CHARS and _CONTROL.search(text) is None and _HALVES.search(text) is None


RunId = Annotated[str, StringConstraints(pattern=f"^{ID_PATTERN}$", min_length=26, max_length=26)]
Sha256 = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
Oid = Annotated[str, StringConstraints(pattern="^([0-9a-f]{40}|[0-9a-f]{64})$")]
NAME_PATTERN: Final = "^[a-z0-9][a-z0-9._-]{0,62}$"
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
Text = Annotated[str, StringConstraints(max_length=TEXT_MAX_CHARS), AfterValidator(_no_controls)]
Moment = Annotated[str, StringConstraints(max_length=40), AfterValidator(_moment)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]
_ParamText = Annotated[str, StringConstraints(max_length=TEXT_MAX_CHARS), AfterValidator(_no_controls)]
ParamValue = bool | int | float | _ParamText


class Record(BaseModel):
    """A frozen, strict value with canonical bytes."""

    # Validators are built at first use: a command reads a few of the records and would pay for all of them.
    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, protected_namespaces=(), defer_build=True
    )

    def canonical(self) -> bytes:
        """Return the canonical JSON bytes of this record."""
        return strictjson.encode(self.model_dump(mode="json"))

    @classmethod
    def parse(cls, data: bytes, **bounds: int) -> Self:
        """Return the record of strict JSON bytes.

        Args:
            data: UTF-8 JSON.
            bounds: ``max_bytes`` and ``max_depth`` of `bridge.strictjson.decode`.

        Raises:
            bridge.strictjson.StrictJsonError: not strict JSON.
            pydantic.ValidationError: strict JSON of another shape.
        """
        strictjson.decode(data, **bounds)
        return cls.model_validate_json(data)

    def evolve(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, validated again."""
        return type(self).model_validate({**{name: getattr(self, name) for name in type(self).model_fields}, **changes})
