"""Say folders of this machine by what they are: what leaves it names none of them.

Knows no disk: the folders are given, texts and records go in and come out.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any, Final, TypeVar

from bridge import strictjson
from bridge.records.base import Record

R = TypeVar("R", bound=Record)

PLACES: Final = ("RUN", "STATE", "ENV", "SOURCE", "HOME")
"""The run's folder, the runner's state, the interpreter's environment, the checkout that an editable installation comes
from, and the home of the runner's account."""
_OF_REQUEST: Final = frozenset({"params", "KAKEYA_PARAMS"})
"""Copies of what the request says, as keys or as names of variables; the gate compares them with it."""
_PAIRS: Final = tuple([name] for name in sorted(_OF_REQUEST))


class PlaceNames:
    """Writes ``${RUN}/files/work`` for the folder of a run, and so on for the other places.

    Args:
        folders: the folders of a place by its name, as typed and with links resolved; a root or relative folder counts
            as none. Of nested folders the longest one names a path.
    """

    def __init__(self, folders: Mapping[str, Iterable[PurePath | str]]) -> None:
        self._names: dict[str, str] = {}
        for place in PLACES:
            for folder in folders.get(place, ()):
                path = PurePath(folder)
                if path.is_absolute() and path != PurePath(path.anchor):
                    self._names.setdefault(str(path), f"${{{place}}}")
        longest_first = sorted(self._names, key=len, reverse=True)
        # Whole components only: /home/ada does not name /home/adam, nor the end of /srv/home/ada.
        self._folder = re.compile(rf"(?<![\w/.-])(?:{'|'.join(map(re.escape, longest_first))})(?![\w-]|\.\w)")

    def name(self, text: str) -> str:
        """Return a text in which each folder of a place is said by the place's name."""
        return self._folder.sub(lambda match: self._names[match[0]], text) if self._names else text

    def name_in(self, record: R) -> R:
        """Return a record whose texts name places; keys, and what repeats the request, stay as they are."""
        named = self._name_below(record.model_dump(mode="json"))
        return type(record).model_validate_json(strictjson.encode(named))

    def _name_below(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.name(value)
        if isinstance(value, list):
            return value if value[:1] in _PAIRS else [self._name_below(item) for item in value]
        if isinstance(value, dict):
            if value.get("name") in _OF_REQUEST:
                return value
            return {key: item if key in _OF_REQUEST else self._name_below(item) for key, item in value.items()}
        return value
