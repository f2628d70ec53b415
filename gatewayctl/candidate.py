"""The candidate of a gateway, whose changes are staged and committed without overwriting those of others; and
the secrets that the API masks in configurations."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gateway_contract.base.logs import MASK
from gateway_contract.base.texts import Path, PathSegment, format_path
from gatewayctl.client.errors import ClientError, Refused
from gatewayctl.client.gateway import Record, RemoteGateway
from gatewayctl.failures import CommandFailure, ExitStatus
from gatewayctl.terminal import complain
from gatewayctl.texts import lines, sessions

ROOT = "/system/config"
#: Before the path of an error of the first operation.
_OPERATION = re.compile(r"^operations\.0(\.|: )")


class RemoteCandidate:
    """Each request requires the entity tag of the one before it."""

    def __init__(self, gateway: RemoteGateway) -> None:
        self._gateway = gateway
        self._etag: str | None = None
        self._is_staged = False

    def read(self, which: str) -> Any:
        """Return the data of /candidate or /compare, or of the running configuration with ''. Raises
        ClientError."""
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
        self.discard()

    def discard(self) -> None:
        """Raises ClientError."""
        self._change("POST", "/discard")
        self._is_staged = False

    def edit(self, operation: Record) -> str:
        """Stage an operation. Return its path, with the keys of items in place of indexes. Raises
        ClientError."""
        try:
            done = self._change("POST", "/edit", {"operations": [operation]})
        except Refused as failure:
            # There is only one operation.
            raise Refused(*(_OPERATION.sub("", said) for said in failure.lines)) from failure
        self._is_staged = True
        # An older gateway does not tell.
        return str(done["paths"][0] if done else operation["path"])

    def replace(self, document: Record) -> None:
        """Stage a whole configuration. Masked secrets stay as they are. Raises ClientError."""
        self._change("PUT", "/candidate", document)
        self._is_staged = True

    def commit(self, body: Record) -> Record:
        """Raises ClientError."""
        committed: Record = self._change("POST", "/commit", body)
        self._is_staged = False
        return committed

    def unstage(self) -> None:
        """Discard what `edit` and `replace` staged, if it is not committed yet."""
        if not self._is_staged:
            return
        try:
            self.discard()
        except ClientError as failure:
            complain([*failure.lines, "the changes stay in the candidate"])

    def _change(self, method: str, which: str, body: Record | None = None) -> Any:
        answer = self._gateway.answer(method, ROOT + which, body, if_match=self._etag)
        self._etag = answer.etag
        return answer.data


def effect(difference: Record) -> list[str]:
    """Return the effect of a commit as lines: services and sessions. An invalid candidate has no effect
    yet."""
    impact = difference.get("impact")
    if impact is None:
        return []
    services = [f"{each['name']}: {each['action']}" for each in impact["services"]]
    ends = f"{sessions(impact['sessions_dropped'])} would end"
    # An older gateway has no such field.
    if held := impact.get("sessions_held"):
        ends += f"; with a deadline, {held} of them only when the commit is confirmed"
    return [*services, ends]


def known(wanted: Any, present: Any) -> Any:
    """Return the wanted configuration without the masked secrets that the present one does not have, and
    without the items and sections that it does not have and that need such a secret."""
    if isinstance(wanted, dict):
        held = present if isinstance(present, dict) else {}
        return {
            key: known(value, held.get(key))
            for key, value in wanted.items()
            if key in held or not [*secret_paths(value)]
        }
    if isinstance(wanted, list):
        items = _keyed(present) if isinstance(present, list) else {}
        return [
            known(item, items.get(key))
            for key, item in _keyed(wanted).items()
            if key in items or not [*secret_paths(item)]
        ]
    return present if wanted == MASK else wanted


def secret_paths(document: Any, at: Path = ()) -> Iterator[str]:
    """The paths of all masked secrets."""
    if document == MASK:
        yield format_path(at)
    elif isinstance(document, dict):
        for key, value in document.items():
            yield from secret_paths(value, (*at, PathSegment(key)))
    elif isinstance(document, list):
        for index, item in enumerate(document):
            yield from secret_paths(item, (*at, _key(item, index)))


def filled(document: Any, secrets: Mapping[str, str], at: Path = ()) -> Any:
    """Return the document with the given secrets, by their paths."""
    if document == MASK:
        return secrets.get(format_path(at), MASK)
    if isinstance(document, dict):
        return {key: filled(value, secrets, (*at, PathSegment(key))) for key, value in document.items()}
    if isinstance(document, list):
        return [filled(item, secrets, (*at, _key(item, index))) for index, item in enumerate(document)]
    return document


def values(document: Any, at: Path = ()) -> Iterator[tuple[str, Any]]:
    """The values by their paths, as in a diff of the API: an empty object or list is a value."""
    if isinstance(document, dict) and document:
        for key, value in document.items():
            yield from values(value, (*at, PathSegment(key)))
    elif isinstance(document, list) and any(isinstance(item, dict) for item in document):
        for index, item in enumerate(document):
            yield from values(item, (*at, _key(item, index)))
    else:
        yield format_path(at), document


def _keyed(items: list[Any]) -> dict[PathSegment, Any]:
    return {_key(item, index): item for index, item in enumerate(items)}


def _key(item: Any, index: int) -> PathSegment:
    # Not above: every command of gatewayctl would wait for it.
    from gateway_contract.configuration import KEYS

    if isinstance(item, dict):
        for name in KEYS:
            if isinstance(item.get(name), str):
                return PathSegment(item[name])
    return PathSegment(str(index), index)
