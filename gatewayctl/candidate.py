"""Candidate of a gateway, and values and masked secrets of configurations. Changes are staged and committed
without overwriting those of other users."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gateway_contract.base.logs import MASK
from gateway_contract.base.texts import Path, PathSegment, format_path
from gatewayctl.client.gateway import Record, RemoteGateway
from gatewayctl.errors import ClientError, CommandError, ExitStatus, Refused
from gatewayctl.terminal import complain
from gatewayctl.texts import count_sessions, escape_lines

CONFIGURATION_PATH = "/system/config"
#: Prefix of the path of an error in the first operation.
_OPERATION = re.compile(r"^operations\.0(\.|: )")


class RemoteCandidate:
    """Candidate of a gateway. Each request requires the ETag of the request before it."""

    def __init__(self, gateway: RemoteGateway) -> None:
        self._gateway = gateway
        self._etag: str | None = None
        self._is_staged = False

    def read(self, path: str) -> Any:
        """Return the data of /candidate or /compare; with '', the running configuration. Raises
        ClientError."""
        return self._request("GET", path)

    def require_clean(self, *, discard: bool, remedy: str) -> None:
        """Raise CommandError while the candidate has changes, unless they are to be discarded. `remedy` is an
        option that helps. Raises ClientError."""
        difference = self.read("/compare")
        if not difference["diff"]:
            return
        if not discard:
            raise CommandError(
                ExitStatus.REFUSED,
                f"the candidate has these changes; commit them, discard them, or use {remedy}:",
                *escape_lines(difference["diff"].rstrip("\n")),
            )
        self.discard()

    def discard(self) -> None:
        """Discard all changes of the candidate. Raises ClientError."""
        self._request("POST", "/discard")
        self._is_staged = False

    def edit(self, operation: Record) -> str:
        """Stage an operation. Return its path, in which indexes of items are replaced by keys. Raises
        ClientError."""
        try:
            response = self._request("POST", "/edit", {"operations": [operation]})
        except Refused as error:
            # There is only one operation, so its number is left out.
            raise Refused(*(_OPERATION.sub("", line) for line in error.lines)) from error
        self._is_staged = True
        # An older gateway does not return the path.
        return str(response["paths"][0] if response else operation["path"])

    def replace(self, document: Record) -> None:
        """Stage a whole configuration. Masked secrets keep their values. Raises ClientError."""
        self._request("PUT", "/candidate", document)
        self._is_staged = True

    def commit(self, body: Record) -> Record:
        """Commit the candidate, and return the response. Raises ClientError."""
        response: Record = self._request("POST", "/commit", body)
        self._is_staged = False
        return response

    def unstage(self) -> None:
        """Discard what `edit` and `replace` staged, if it is not committed yet."""
        if not self._is_staged:
            return
        try:
            self.discard()
        except ClientError as error:
            complain([*error.lines, "the changes stay in the candidate"])

    def _request(self, method: str, path: str, body: Record | None = None) -> Any:
        etag = None if method == "GET" else self._etag
        answer = self._gateway.request(method, CONFIGURATION_PATH + path, body, if_match=etag)
        self._etag = answer.etag
        return answer.data


def describe_effect(difference: Record) -> list[str]:
    """Return the effect of a commit as lines: services and sessions. An invalid candidate has no effect."""
    impact = difference.get("impact")
    if impact is None:
        return []
    services = [f"{each['name']}: {each['action']}" for each in impact["services"]]
    ends = f"{count_sessions(impact['sessions_dropped'])} would end"
    # An older gateway has no such field.
    if held := impact.get("sessions_held"):
        ends += f"; with a deadline, {held} of them only when the commit is confirmed"
    return [*services, ends]


def drop_unknown_secrets(wanted: Any, present: Any) -> Any:
    """Return the wanted configuration without masked secrets that the present configuration lacks, and
    without the items and sections that it lacks and that need such a secret."""
    if isinstance(wanted, dict):
        fields = present if isinstance(present, dict) else {}
        return {
            key: drop_unknown_secrets(value, fields.get(key))
            for key, value in wanted.items()
            if key in fields or not [*list_secrets(value)]
        }
    if isinstance(wanted, list):
        items = dict(_key_items(present)) if isinstance(present, list) else {}
        return [
            drop_unknown_secrets(item, items.get(key))
            for key, item in _key_items(wanted)
            if key in items or not [*list_secrets(item)]
        ]
    return present if wanted == MASK else wanted


def list_secrets(document: Any) -> Iterator[str]:
    """Return the paths of all masked secrets."""
    return (path for path, value in list_values(document) if value == MASK)


def fill_secrets(document: Any, secrets: Mapping[str, str], at: Path = ()) -> Any:
    """Return the document, in which masked secrets are replaced by the given secrets of the same path."""
    if document == MASK:
        return secrets.get(format_path(at), MASK)
    if isinstance(document, dict):
        return {key: fill_secrets(value, secrets, (*at, PathSegment(key))) for key, value in document.items()}
    if isinstance(document, list):
        return [fill_secrets(item, secrets, (*at, key)) for key, item in _key_items(document)]
    return document


def list_values(document: Any, at: Path = ()) -> Iterator[tuple[str, Any]]:
    """Return the values by path, as in a diff of the API: an empty object or a list of texts is a value."""
    if isinstance(document, dict) and document:
        for key, value in document.items():
            yield from list_values(value, (*at, PathSegment(key)))
    elif isinstance(document, list) and any(isinstance(item, dict) for item in document):
        for key, item in _key_items(document):
            yield from list_values(item, (*at, key))
    else:
        yield format_path(at), document


def _key_items(items: list[Any]) -> list[tuple[PathSegment, Any]]:
    """Return the items of a list with their segments of a path."""
    return [(_get_key(item, index), item) for index, item in enumerate(items)]


def _get_key(item: Any, index: int) -> PathSegment:
    # Imported here, because the import takes time, and few commands need it.
    from gateway_contract.configuration import KEYS

    names = (name for name in KEYS if isinstance(item, dict) and isinstance(item.get(name), str))
    return next((PathSegment(item[name]) for name in names), PathSegment(str(index), index))
