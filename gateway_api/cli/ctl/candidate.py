"""The candidate of a gateway, whose changes are staged and committed without overwriting those of others; the
difference of two configurations as operations of the API, and the secrets that it masks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway_api.base.texts import Path, Segment, path_text
from gateway_api.cli.ctl.failures import CommandFailure, ExitStatus
from gateway_api.cli.ctl.terminal import complain
from gateway_api.cli.ctl.texts import lines, sessions
from gateway_api.client.errors import ClientError
from gateway_api.client.gateway import Record, RemoteGateway
from gateway_api.wire.configuration import KEYS

ROOT = "/system/config"
#: The most operations of a request.
_MOST = 1000


class RemoteCandidate:
    """Each request requires the entity tag of the one before it."""

    def __init__(self, gateway: RemoteGateway) -> None:
        self._gateway = gateway
        self._etag: str | None = None
        self._is_staged = False

    def read(self, which: str) -> Any:
        """The data of /candidate or /compare, or of the running configuration with ''. Raises ClientError."""
        answer = self._gateway.answer("GET", ROOT + which)
        self._etag = answer.etag
        return answer.data

    def require_clean(self, *, discard: bool, remedy: str) -> None:
        """Raises ClientError while the candidate has changes of somebody, unless they are to be discarded."""
        difference = self.read("/compare")
        if not difference["diff"]:
            return
        if not discard:
            raise CommandFailure(
                ExitStatus.REFUSED,
                f"the candidate has these changes; commit them, discard them, or use {remedy}:",
                *lines(difference["diff"].rstrip("\n")),
            )
        self._change("/discard")

    def stage(self, operations: Sequence[Record]) -> None:
        """Raises ClientError."""
        for start in range(0, len(operations), _MOST):
            self._change("/edit", {"operations": list(operations[start : start + _MOST])})
            self._is_staged = True

    def commit(self, body: Record) -> Record:
        """Raises ClientError."""
        committed: Record = self._change("/commit", body)
        self._is_staged = False
        return committed

    def unstage(self) -> None:
        """Discards what `stage` staged, if it is not committed yet."""
        if not self._is_staged:
            return
        try:
            self._change("/discard")
            self._is_staged = False
        except ClientError as failure:
            complain([*failure.lines, "the changes stay in the candidate"])

    def _change(self, which: str, body: Record | None = None) -> Any:
        answer = self._gateway.answer("POST", ROOT + which, body, if_match=self._etag)
        self._etag = answer.etag
        return answer.data


def effect(difference: Record) -> list[str]:
    """The effect of a commit as lines: services and sessions. An invalid candidate has no effect yet."""
    impact = difference.get("impact")
    if impact is None:
        return []
    services = [f"{each['name']}: {each['action']}" for each in impact["services"]]
    return [*services, f"{sessions(impact['sessions_dropped'])} would end"]


#: The API shows this instead of a secret.
MASK = "********"


@dataclass(frozen=True)
class Missing:
    """A secret that is neither in the wanted configuration nor in the present one, or an item with such a
    secret."""

    path: str


def operations(wanted: Any, present: Any, at: Path = ()) -> Iterator[Record | Missing]:
    """The operations that make the wanted configuration of the present one. A masked secret stays as it is at
    present. A list with masked secrets cannot be set as a whole: its items are set by their keys."""
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
        for name in KEYS:
            if isinstance(item.get(name), str):
                return Segment(item[name])
    return Segment(str(index), index)


def _set(at: Path, value: Any) -> Record:
    return {"op": "set", "path": path_text(at), "value": value}


def _delete(at: Path) -> Record:
    return {"op": "delete", "path": path_text(at)}
