"""Places in a configuration, as text: `qos.default_down`, `api.users.alice.role`, `interfaces.trunks.0`.

Segments are joined by dots. One is a name, the index of a list, the key of a list's item, or any of
these in double quotes: `bgp.neighbors."10.255.0.2".remote_as`. A number is a key only in quotes.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

LONGEST = 512

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z", re.ASCII)
_SEGMENT = re.compile(
    r"""(?P<name>[A-Za-z_][A-Za-z0-9_-]*)
      | (?P<index>0|[1-9][0-9]{0,5})
      | "(?P<quoted>[^"\x00-\x1f\x7f]+)" """,
    re.ASCII | re.VERBOSE,
)


@dataclass(frozen=True)
class Segment:
    """One step into a document: the `text` of a name or key, or the `index` of an item."""

    text: str
    index: int | None = None

    def __str__(self) -> str:
        if self.index is not None or _NAME.match(self.text):
            return self.text
        return f'"{self.text}"'


Path = tuple[Segment, ...]


def parse_path(text: str) -> Path:
    """The segments, at least one. Raises ValueError with the rule."""
    if len(text) > LONGEST:
        raise ValueError(f"must have at most {LONGEST} characters")
    segments, position = [], 0
    while match := _SEGMENT.match(text, position):
        if match["index"] is not None:
            segments.append(Segment(match["index"], int(match["index"])))
        else:
            segments.append(Segment(match["name"] or match["quoted"]))
        position = match.end()
        if position == len(text):
            return tuple(segments)
        if text[position] != ".":
            break
        position += 1
    raise ValueError('must be segments joined by dots: names, indexes, keys, or "quoted text"')


def path_text(segments: Iterable[Segment]) -> str:
    """The path that `parse_path` reads as these segments."""
    return ".".join(map(str, segments))
