"""Places in a configuration, as they are asked for: read without knowing the schema."""

import re
from typing import Any

_SEGMENT = r'(?:[A-Za-z_][A-Za-z0-9_-]*|[0-9]{1,6}|"[^"\x00-\x1f\x7f]+")'
_PATH = re.compile(rf"{_SEGMENT}(?:\.{_SEGMENT})*", re.ASCII)
_SEGMENTS = re.compile(_SEGMENT, re.ASCII)

#: What items of lists go by.
_KEYS = ("name", "username", "address")


def segments(path: str) -> list[str] | None:
    """What a path is made of, quotes left out; None for a text that is no path."""
    if not _PATH.fullmatch(path):
        return None
    return [segment.strip('"') for segment in _SEGMENTS.findall(path)]


def value_at(document: Any, path: str) -> Any:
    """What a document holds at a path; None where there is nothing."""
    held = document
    for segment in segments(path) or [""]:
        if isinstance(held, dict):
            held = held.get(segment)
        elif isinstance(held, list):
            held = _item(held, segment)
        else:
            return None
    return held


def _item(items: list[Any], segment: str) -> Any:
    if segment.isdigit() and int(segment) < len(items):
        return items[int(segment)]
    named = (item for item in items if isinstance(item, dict))
    return next((item for item in named if segment in (item.get(key) for key in _KEYS)), None)
