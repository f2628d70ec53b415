"""The difference of two configurations as operations of the API, and the secrets that it masks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gateway_api.base.texts import Path, Segment, path_text
from gateway_api.client.gateway import Record

#: The API shows this instead of a secret.
MASK = "********"
#: The fields that name the items of a list; an item of a list has one of them.
_KEYS = ("username", "name", "address", "url")


@dataclass(frozen=True)
class Missing:
    """A secret that is neither in the wanted configuration nor in the present one, or an item with such a
    secret."""

    path: str


def operations(wanted: Any, present: Any, at: Path = ()) -> Iterator[Record | Missing]:
    """What makes the wanted configuration of the present one. A masked secret stays as it is at present. A
    list with masked secrets cannot be set as a whole: its items are set by their keys."""
    if wanted == present:
        return
    if wanted == MASK:
        yield Missing(path_text(at))
    elif isinstance(wanted, dict) and wanted:
        held = present if isinstance(present, dict) else {}
        for key in held.keys() - wanted.keys():
            yield _delete((*at, Segment(key)))
        for key, value in wanted.items():
            if key not in held and not (missing := [*secret_paths(value, (*at, Segment(key)))]):
                yield _set((*at, Segment(key)), value)
            elif key not in held:
                yield from map(Missing, missing)
            else:
                yield from operations(value, held[key], (*at, Segment(key)))
    elif isinstance(wanted, list) and any(secret_paths(wanted)):
        yield from _of_items(wanted, present if isinstance(present, list) else [], at)
    else:
        yield _set(at, wanted)


def _of_items(wanted: list[Any], present: list[Any], at: Path) -> Iterator[Record | Missing]:
    held = {_key(item, index): item for index, item in enumerate(present)}
    kept = {_key(item, index): item for index, item in enumerate(wanted)}
    for key in held.keys() - kept.keys():
        yield _delete((*at, key))
    for key, item in kept.items():
        if key in held:
            yield from operations(item, held[key], (*at, key))
        elif missing := [*secret_paths(item, (*at, key))]:
            yield from map(Missing, missing)
        else:
            yield _set((*at, key), item)


def secret_paths(document: Any, at: Path = ()) -> Iterator[str]:
    """The paths of all masked secrets."""
    if document == MASK:
        yield path_text(at)
    elif isinstance(document, dict):
        for key, value in document.items():
            yield from secret_paths(value, (*at, Segment(key)))
    elif isinstance(document, list):
        for index, item in enumerate(document):
            yield from secret_paths(item, (*at, _key(item, index)))


def filled(document: Any, secrets: Mapping[str, str], at: Path = ()) -> Any:
    """The document with the given secrets, by their paths."""
    if document == MASK:
        return secrets.get(path_text(at), MASK)
    if isinstance(document, dict):
        return {key: filled(value, secrets, (*at, Segment(key))) for key, value in document.items()}
    if isinstance(document, list):
        return [filled(item, secrets, (*at, _key(item, index))) for index, item in enumerate(document)]
    return document


def values(document: Any, at: Path = ()) -> Iterator[tuple[str, Any]]:
    """The values by their paths, as in a diff of the API: an empty object or list is a value."""
    if isinstance(document, dict) and document:
        for key, value in document.items():
            yield from values(value, (*at, Segment(key)))
    elif isinstance(document, list) and any(isinstance(item, dict) for item in document):
        for index, item in enumerate(document):
            yield from values(item, (*at, _key(item, index)))
    else:
        yield path_text(at), document


def _key(item: Any, index: int) -> Segment:
    if isinstance(item, dict):
        for name in _KEYS:
            if isinstance(item.get(name), str):
                return Segment(item[name])
    return Segment(str(index), index)


def _set(at: Path, value: Any) -> Record:
    return {"op": "set", "path": path_text(at), "value": value}


def _delete(at: Path) -> Record:
    return {"op": "delete", "path": path_text(at)}
