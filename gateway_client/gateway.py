"""Client of a gateway's API, with event streams that resume after a lost connection. This module alone turns
errors of HTTP and of the API into ClientErrors."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from gateway_client.contexts import Context, ContextsFile, find_own_certificate, is_token
from gateway_client.errors import ClientError, LoginRequired, NoResponse, NoSuchRecord, Refused
from gateway_contract import version

if TYPE_CHECKING:
    import requests

Record = dict[str, Any]

_CONNECT_SECONDS = 5.0
_TIMEOUT_SECONDS = 60.0
_PAGE_SIZE = 2000
#: Remedy for a host on which no process listens at the port.
_CONNECTION_REFUSED_REMEDY = (
    "on the gateway, look with: systemctl status gateway-api, and journalctl -u gateway-api"
)


class ApiResponse(NamedTuple):
    """Response of the API. `data` is the data of the envelope, or the whole document if there is no envelope.
    `etag` can be sent as `if_match` with a later request."""

    data: Any
    etag: str | None


#: Function that returns a line about the path of a field and the rule that the field breaks.
DescribeProblem = Callable[[str, str], str]
#: Function that logs in again after the token has expired, and returns the new token; None if it cannot.
Renewal = Callable[["RemoteGateway"], str | None]


class RemoteGateway:
    """HTTPS client of the gateway of a context. Each request is sent with the token of the context, and with
    the name of the program as its User-Agent."""

    def __init__(
        self,
        context: Context,
        renew: Renewal | None = None,
        timeout: float = _TIMEOUT_SECONDS,
        describe_problem: DescribeProblem = "{}: {}".format,
        program: str = "gatewayctl",
    ) -> None:
        # Imported here, because a command without a gateway, such as `--help`, does not need them.
        import ssl

        import requests

        self.context = context
        self._token = context.token
        self._renew = renew
        self._describe_problem = describe_problem
        self._timeout = timeout
        self._http = requests.Session()
        # Ignore proxies and passwords of the environment (.netrc), which are not meant for a gateway.
        self._http.trust_env = False
        ca = context.ca or find_own_certificate(context.url, os.environ)
        self._http.verify = ca or ssl.get_default_verify_paths().capath or True
        self._http.headers["User-Agent"] = f"{program}/{version.VERSION}"

    def get(self, path: str, **query: Any) -> Any:
        """Send a GET request, and return the data of the response. Query parameters whose value is None are
        not sent. Raises ClientError if the request fails."""
        return self.request("GET", path, query=query).data

    def send(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request that changes something, and return the data of the response. `body` is sent as JSON.
        Raises ClientError if the request fails."""
        return self.request(method, path, body).data

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Record | None = None,
        if_match: str | None = None,
    ) -> ApiResponse:
        """Send a request, and return the response. `body` is sent as JSON, and `if_match` is the ETag that
        must be current. If the token has expired and can be renewed, send the request once more. Raises
        ClientError if the request fails."""
        headers = {} if if_match is None else {"If-Match": if_match}
        response = self._send_with_renewal(method, path, json=body, params=query, headers=headers)
        return self._parse(response)

    def list_records(self, path: str, key: str, query: Record, limit: int | None = None) -> list[Record]:
        """Return the records of all pages of a list; with `limit`, at most this number of records. `key` is
        the name of the list in the data of the response. Raises ClientError if a request fails."""
        records: list[Record] = []
        cursor = None
        while limit is None or len(records) < limit:
            size = _PAGE_SIZE if limit is None else min(_PAGE_SIZE, limit - len(records))
            data = self.get(path, **query, limit=size, cursor=cursor)
            records += data[key]
            cursor = data.get("next_cursor")
            if cursor is None:
                break
        return records

    @contextmanager
    def stream(
        self, path: str, query: Record, headers: Record, silence_seconds: float
    ) -> Iterator[Iterator[bytes]]:
        """Open an event stream, and yield the lines of the stream. The stream ends when the connection is
        lost, or after `silence_seconds` without a line. Raises ClientError if the gateway does not open a
        stream."""
        timeouts = (_CONNECT_SECONDS, silence_seconds)
        with self._send_with_renewal(
            "GET", path, params=query, headers=headers, stream=True, timeout=timeouts
        ) as response:
            if response.status_code != HTTPStatus.OK:
                self._parse(response)
            yield _iterate_lines(response)

    def _send_with_renewal(self, method: str, path: str, **arguments: Any) -> requests.Response:
        old_token = self._token
        response = self._send(method, path, **arguments)
        if response.status_code == HTTPStatus.UNAUTHORIZED and self._renew and path != "/auth/login":
            new_token = self._renew(self)
            if new_token not in (None, old_token):
                self._token = new_token
                response = self._send(method, path, **arguments)
        return response

    def _send(self, method: str, path: str, **arguments: Any) -> requests.Response:
        arguments.setdefault("timeout", (_CONNECT_SECONDS, self._timeout))
        headers = arguments.pop("headers", {})
        if self._token and is_token(self._token) and path != "/auth/login":
            headers = {**headers, "Authorization": f"Bearer {self._token}"}
        url = f"{self.context.url}/api/v1{path}"
        try:
            return self._http.request(method, url, headers=headers, allow_redirects=False, **arguments)
        except OSError as error:
            # An error of requests, or a CA certificate that cannot be read.
            lines = [f"no response from a gateway at {self.context.url}: {_find_reason(error)}"]
            if any(isinstance(each, ConnectionRefusedError) for each in _list_causes(error)):
                lines.append(_CONNECTION_REFUSED_REMEDY)
            raise NoResponse(*lines) from error

    def _parse(self, response: requests.Response) -> ApiResponse:
        """Return the content of a successful response. Raises ClientError if the response is an error or is
        not a response of a gateway."""
        try:
            document = json.loads(response.content)
            if not isinstance(document, dict):
                raise TypeError("not an object")
        except (ValueError, TypeError, OSError) as error:
            raise NoResponse(f"the response from {response.url} is not from a gateway") from error
        if not response.ok:
            raise self._create_error(response, document)
        return ApiResponse(
            document.get("data") if "status" in document else document, response.headers.get("ETag")
        )

    def _create_error(self, response: requests.Response, document: Record) -> ClientError:
        lines = _describe_error(document, self._describe_problem)
        kind: type[ClientError] = Refused
        code = response.status_code
        if code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS}:
            kind = LoginRequired
            if code == HTTPStatus.UNAUTHORIZED and not response.url.endswith("/auth/login"):
                problem = replace(self.context, token=self._token).describe_token_problem(time.time())
                lines += [*filter(None, [problem]), "log in with: gatewayctl login"]
        elif code == HTTPStatus.NOT_FOUND:
            kind = NoSuchRecord
        # A retry after 501 would fail, too.
        elif code >= HTTPStatus.INTERNAL_SERVER_ERROR and code != HTTPStatus.NOT_IMPLEMENTED:
            kind = NoResponse
            lines[-1] += f" (request {response.headers.get('X-Request-ID', 'unknown')})"
        if after := response.headers.get("Retry-After"):
            lines.append(f"try again in {after} s")
        return kind(*lines)


def request_token(gateway: RemoteGateway, username: str, password: str) -> str:
    """Log in, and return the token. Raises ClientError if the login fails."""
    document = gateway.send("POST", "/auth/login", {"username": username, "password": password})
    token = document.get("access_token") if isinstance(document, dict) else None
    if not isinstance(token, str) or not is_token(token):
        raise NoResponse(f"the response from {gateway.context.url} is not from a gateway")
    return token


def log_in(
    gateway: RemoteGateway, file: ContextsFile, username: str, password: str, *, make_current: bool = False
) -> Context:
    """Log in, store the token in the context of the gateway, and return the context. With `make_current`, the
    context becomes the current context. Raises ClientError if the login fails or the context cannot be
    stored."""
    token = request_token(gateway, username, password)
    context = replace(gateway.context, username=username, token=token)
    file.edit(lambda contexts: contexts.add(context, make_current=make_current))
    return context


def _iterate_lines(response: requests.Response) -> Iterator[bytes]:
    # A lost connection ends the stream, too: the client resumes in both cases.
    with suppress(OSError):
        # chunk_size=None makes requests yield data as soon as it arrives.
        yield from response.iter_lines(chunk_size=None)  # type: ignore[call-overload]


def _find_reason(error: BaseException) -> str:
    """Return the reason that the operating system or OpenSSL gave for an error. The exceptions of requests
    and urllib3 wrap this reason."""
    *_, cause = _list_causes(error)
    return str(getattr(cause, "strerror", None) or cause)


def _list_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, the error that it wraps, and so on."""
    yield error
    inner = [getattr(error, "reason", None), *error.args, error.__cause__]
    cause = next((each for each in inner if isinstance(each, BaseException)), None)
    if cause is not None:
        yield from _list_causes(cause)


def _describe_error(document: Record, describe_problem: DescribeProblem) -> list[str]:
    """Return the lines of an error message for the body of an error response. For each problem of the
    request, the line has the option or field and the broken rule."""
    match document:
        case {"detail": str(detail)}:
            return [detail]
        case {"errors": [_, *_] as errors}:
            problems = [(each.get("path"), str(each.get("message"))) for each in errors]
            return [describe_problem(path, rule) if path else rule for path, rule in problems]
        case {"message": str(message), "hint": str(hint)}:
            return [message, hint]
        case {"message": str(message)}:
            return [message]
        case _:
            return ["the gateway gives no reason"]


_EVENTS_PATH = "/events/subscribers"
#: Time without a line after which a stream counts as lost. Heartbeats arrive every 15 s.
_MAX_SILENCE_SECONDS = 45.0
_MAX_PAUSE_SECONDS = 30
#: A failed sign-on appears in the history after one or two seconds.
_POLL_SECONDS = 3.0
#: Key of a failed sign-on in the history.
_get_sign_on_key = itemgetter("username", "mac_address", "access_interface", "reason", "first_at")

#: Function that tells the user about a lost connection.
Notify = Callable[[str], None]


@dataclass(frozen=True)
class Event:
    """Event of a stream. A client that sends the `id` of an event can resume the stream after this event."""

    id: str
    name: str
    data: Record


def parse_events(stream: Iterable[bytes]) -> Iterator[Event | None]:
    """Yield the events of a stream, and None for each heartbeat. `stream` yields lines. An incomplete event
    at the end is dropped, because the client resumes the stream after the last complete event."""
    fields: dict[str, Any] = {}
    for raw in stream:
        text = raw.decode(errors="replace")
        if text.startswith(":"):
            yield None
        elif text:
            name, _, value = text.partition(":")
            fields[name] = value.removeprefix(" ")
        elif "data" in fields:
            yield Event(fields.get("id", ""), fields.get("event", "message"), json.loads(fields["data"]))
            fields = {}


def read_events(gateway: RemoteGateway, query: Record, last_id: str | None) -> Iterator[Event | None]:
    """Yield the session events after the event `last_id`, or from now on, and None for each heartbeat, until
    the connection is lost. Raises ClientError if the gateway does not open the stream."""
    headers = {"Last-Event-ID": last_id} if last_id else {}
    with gateway.stream(_EVENTS_PATH, query, headers, _MAX_SILENCE_SECONDS) as stream:
        yield from parse_events(stream)


@dataclass
class EventFollower:
    """Endless event stream of one gateway. `last_id` is the id of the last received event. Before a new
    attempt, the follower waits for a time that doubles with each failure, up to `max_pause_seconds`."""

    gateway: RemoteGateway
    query: Record
    last_id: str | None
    notify: Notify
    max_pause_seconds: int = _MAX_PAUSE_SECONDS
    _pause_seconds: int = 1

    def follow(self) -> Iterator[Event]:
        """Yield the events of the stream, and resume the stream after a lost connection. Raises ClientError
        if the gateway refuses a request, or does not respond to the first request."""
        self.gateway.get("/subscribers/summary")
        while True:
            try:
                yield from self._stream()
                after = (
                    f"after {self.last_id}"
                    if self.last_id
                    else "with the next event: some events may be lost"
                )
                self.notify(f"the stream has ended; resuming {after}")
            except NoResponse as error:
                self.notify(f"{error.lines[0]}; trying again in {self._pause_seconds} s")
            time.sleep(self._pause_seconds)
            self._pause_seconds = min(2 * self._pause_seconds, self.max_pause_seconds)

    def _stream(self) -> Iterator[Event]:
        for event in read_events(self.gateway, self.query, self.last_id):
            self._pause_seconds = 1
            if event is not None:
                self.last_id = event.id
                yield event


@dataclass
class SignOnFollower:
    """Endless stream of the failed sign-ons of one gateway, read from the history by polling."""

    gateway: RemoteGateway
    query: Record
    notify: Notify
    #: Number of attempts by record, for the records that may get more attempts.
    _attempts: dict[tuple[Any, ...], int] = field(default_factory=dict)
    _since: int | None = None

    def follow(self) -> Iterator[Event]:
        """Yield each sign-on that fails from now on. Raises ClientError if the gateway refuses the
        request."""
        self._poll()
        while True:
            time.sleep(_POLL_SECONDS)
            try:
                records = self._poll()
            except NoResponse as error:
                self.notify(f"{error.lines[0]}; failed sign-ons are asked for again")
                continue
            for record in records:
                yield Event("", "sign_on_failed", {**record, "at": record["last_at"]})

    def _poll(self) -> list[Record]:
        """Return the records with new attempts since the last poll, oldest first."""
        query = {**self.query, "since": self._since}
        records = self.gateway.list_records("/subscribers/failed-sign-ons", "failures", query)
        former_attempts = self._attempts
        self._attempts = {_get_sign_on_key(each): each["attempts"] for each in records}
        new_records = [
            each for each in records if former_attempts.get(_get_sign_on_key(each)) != each["attempts"]
        ]
        self._since = max((each["last_at"] for each in records), default=self._since)
        return sorted(new_records, key=lambda each: int(each["last_at"]))
