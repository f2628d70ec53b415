"""What makes two configurations differ, as lines that people read.

    - qos.default_down = "100mbit"
    + qos.default_down = "200mbit"
    - radius.secret = ********
    + radius.secret = ********

One line a value, by path; the items of a keyed list go by their keys, and their order, where it changed,
has lines of its own. Secrets are masked. No lines, no difference.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from marshmallow.fields import Nested

from gateway_api.base.configuration_path import Path, Segment, path_text
from gateway_api.base.redact import MASK, is_secret
from gateway_api.core.configuration.fields import key_of
from gateway_api.core.configuration.schema import Configuration

_ROOT = Nested(Configuration)


@dataclass(frozen=True)
class Change:
    """A value before and after, as JSON; None where there is none."""

    path: Path
    before: str | None
    after: str | None

    def lines(self) -> Iterator[str]:
        secret = is_secret(self.path[-1].text)
        for sign, value in (("-", self.before), ("+", self.after)):
            if value is not None:
                shown = MASK if secret and value != "null" else value
                yield f"{sign} {path_text(self.path)} = {shown}"


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[Change]:
    """One for each value that isn't the same, in the order of the paths' text."""
    old, new = dict(_values(before, _ROOT, ())), dict(_values(after, _ROOT, ()))
    orders = dict(_orders(before, _ROOT, ()))
    for path, now in _orders(after, _ROOT, ()):
        was = orders.get(path, [])
        in_both = set(was) & set(now)
        if [key for key in was if key in in_both] != [key for key in now if key in in_both]:
            old[path], new[path] = _json(was), _json(now)
    paths = sorted((path for path in {**old, **new} if old.get(path) != new.get(path)), key=path_text)
    return [Change(path, old.get(path), new.get(path)) for path in paths]


def diff_text(found: list[Change]) -> str:
    """The lines, each ended by a newline."""
    return "".join(f"{line}\n" for change in found for line in change.lines())


def _values(value: Any, field: Any, path: Path) -> Iterator[tuple[Path, str]]:
    below = list(_below(value, field))
    for segment, held, its_field in below:
        yield from _values(held, its_field, (*path, segment))
    if not below:
        yield path, _json(value)


def _orders(value: Any, field: Any, path: Path) -> Iterator[tuple[Path, list[str]]]:
    """The keys of each keyed list, in their order."""
    key = key_of(field)
    if key is not None and value:
        yield path, [item[key] for item in value]
    for segment, held, its_field in _below(value, field):
        yield from _orders(held, its_field, (*path, segment))


def _below(value: Any, field: Any) -> Iterator[tuple[Segment, Any, Any]]:
    """What a value is made of, where each part has a path of its own."""
    key = key_of(field)
    if isinstance(value, dict) and isinstance(field, Nested):
        for name, held in value.items():
            yield Segment(name), held, field.schema.fields.get(name)
    elif isinstance(value, list) and key is not None:
        for item in value:
            yield Segment(item[key]), item, field.inner


def _json(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
