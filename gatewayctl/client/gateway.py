"""A gateway as its API shows it. Errors of HTTP and of the API become ClientErrors here, and nowhere else."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

from gateway_contract import version
from gatewayctl.client.contexts import Context, ContextsFile, is_token, own_certificate
from gatewayctl.client.errors import ClientError, LoginRequired, NoResponse, NoSuchRecord, Refused

if TYPE_CHECKING:
    import requests

Record = dict[str, Any]

_CONNECT_TIMEOUT = 5.0
_TIMEOUT = 60.0
#: Records of a page.
_PAGE = 2000
#: For a host on which nothing listens at the port.
_REFUSED = "on the gateway, look with: systemctl status gateway-api, and journalctl -u gateway-api"


class Answer(NamedTuple):
    """`data` of the envelope, or the whole document without one. `etag` is for `if_match`."""

    data: Any
    etag: str | None


#: For the path of a field, and the rule.
Explained = Callable[[str, str], str]
#: Logs in again after the token has expired; None if it cannot.
Renewal = Callable[["RemoteGateway"], str | None]


class RemoteGateway:
    """Sends requests with the token of the context. `explained` makes a line of a field's path and the rule
    that it breaks."""

    def __init__(
        self,
        context: Context,
        renew: Renewal | None = None,
        timeout: float = _TIMEOUT,
        explained: Explained = "{}: {}".format,
    ) -> None:
        # Not above: a command without a gateway, as `--help`, would wait for them.
        import ssl

        import requests

        self.context = context
        self._token = context.token
        self._renew = renew
        self._explained = explained
        self._timeout = timeout
        self._http = requests.Session()
        # The environment's proxies and passwords (.netrc) are not the user's choice for a gateway.
        self._http.trust_env = False
        ca = context.ca or own_certificate(context.url, os.environ)
        self._http.verify = ca or ssl.get_default_verify_paths().capath or True
        self._http.headers["User-Agent"] = f"gatewayctl/{version.VERSION}"

    def get(self, path: str, **query: Any) -> Any:
        """Return the data of a GET. Query parameters that are None are left out. Raises ClientError."""
        return self.answer("GET", path, query=query).data

    def send(self, method: str, path: str, body: Any = None) -> Any:
        """Return the data of a change. Raises ClientError."""
        return self.answer(method, path, body).data

    def answer(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Record | None = None,
        if_match: str | None = None,
    ) -> Answer:
        """One request; a second one if the token had expired and could be renewed. Raises ClientError."""
        headers = {} if if_match is None else {"If-Match": if_match}
        return self._answer_of(self._request(method, path, json=body, params=query, headers=headers))

    def pages(self, path: str, key: str, query: Record, limit: int | None = None) -> list[Record]:
        """Return the records of a list, of all pages, at most `limit`. `key` names the list in the data.
        Raises ClientError."""
        records: list[Record] = []
        cursor = None
        while limit is None or len(records) < limit:
            size = _PAGE if limit is None else min(_PAGE, limit - len(records))
            data = self.get(path, **query, limit=size, cursor=cursor)
            records += data[key]
            cursor = data.get("next_cursor")
            if cursor is None:
                break
        return records

    @contextmanager
    def stream(self, path: str, query: Record, headers: Record, silence: float) -> Iterator[Iterator[bytes]]:
        """The lines of an event stream, until it ends, is lost, or is silent for so many seconds. Raises
        ClientError if there is none."""
        with self._request(
            "GET", path, params=query, headers=headers, stream=True, timeout=(_CONNECT_TIMEOUT, silence)
        ) as response:
            if response.status_code != HTTPStatus.OK:
                self._answer_of(response)
            yield _lines(response)

    def _request(self, method: str, path: str, **more: Any) -> requests.Response:
        sent = self._token
        response = self._sent(method, path, **more)
        if response.status_code == HTTPStatus.UNAUTHORIZED and self._renew and path != "/auth/login":
            renewed = self._renew(self)
            if renewed not in (None, sent):
                self._token = renewed
                response = self._sent(method, path, **more)
        return response

    def _sent(self, method: str, path: str, **more: Any) -> requests.Response:
        more.setdefault("timeout", (_CONNECT_TIMEOUT, self._timeout))
        headers = more.pop("headers", {})
        if self._token and is_token(self._token) and path != "/auth/login":
            headers = {**headers, "Authorization": f"Bearer {self._token}"}
        url = f"{self.context.url}/api/v1{path}"
        try:
            return self._http.request(method, url, headers=headers, allow_redirects=False, **more)
        except OSError as error:
            # An error of requests, or the CA certificate cannot be read.
            raise self._no_response(error) from error

    def _answer_of(self, response: requests.Response) -> Answer:
        """Raises ClientError."""
        try:
            document = json.loads(response.content)
            if not isinstance(document, dict):
                raise TypeError("not an object")
        except (ValueError, TypeError, OSError) as error:
            raise _not_a_gateway(response.url) from error
        if not response.ok:
            raise self._failure(response, document)
        return Answer(
            document.get("data") if "status" in document else document, response.headers.get("ETag")
        )

    def _failure(self, response: requests.Response, document: Record) -> ClientError:
        said = _complaint(document, self._explained)
        kind: type[ClientError] = Refused
        code = response.status_code
        if code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS}:
            kind = LoginRequired
            if code == HTTPStatus.UNAUTHORIZED and not response.url.endswith("/auth/login"):
                problem = replace(self.context, token=self._token).token_problem(time.time())
                said += [*filter(None, [problem]), "log in with: gatewayctl login"]
        elif code == HTTPStatus.NOT_FOUND:
            kind = NoSuchRecord
        # After 501, another attempt would get it, too.
        elif code >= HTTPStatus.INTERNAL_SERVER_ERROR and code != HTTPStatus.NOT_IMPLEMENTED:
            kind = NoResponse
            said[-1] += f" (request {response.headers.get('X-Request-ID', 'unknown')})"
        if after := response.headers.get("Retry-After"):
            said.append(f"try again in {after} s")
        return kind(*said)

    def _no_response(self, error: Exception) -> NoResponse:
        said = [f"no response from a gateway at {self.context.url}: {_reason(error)}"]
        if any(isinstance(each, ConnectionRefusedError) for each in _causes(error)):
            said += [_REFUSED]
        return NoResponse(*said)


def log_in(
    gateway: RemoteGateway, file: ContextsFile, username: str, password: str, *, current: bool = False
) -> Context:
    """Log in and keep the token in the context, which can become the current one. Raises ClientError."""
    document = gateway.send("POST", "/auth/login", {"username": username, "password": password})
    token = document.get("access_token") if isinstance(document, dict) else None
    if not isinstance(token, str) or not is_token(token):
        raise _not_a_gateway(gateway.context.url)
    context = replace(gateway.context, username=username, token=token)
    file.keep(context, current=current)
    return context


def renewal(file: ContextsFile, login: Callable[[Context], tuple[str, str] | None]) -> Renewal:
    """Log in again with the username and the password that `login` finds for a context, if it does."""

    def renew(gateway: RemoteGateway) -> str | None:
        found = login(gateway.context)
        return log_in(RemoteGateway(gateway.context), file, *found).token if found else None

    return renew


def _not_a_gateway(url: str) -> NoResponse:
    return NoResponse(f"the response from {url} is not from a gateway")


def _lines(response: requests.Response) -> Iterator[bytes]:
    # A lost connection is the end too: the client resumes after either.
    with suppress(OSError):
        # Without a size, requests yields what has arrived.
        yield from response.iter_lines(chunk_size=None)  # type: ignore[call-overload]


def _reason(error: BaseException) -> str:
    """Return the reason of the operating system or of OpenSSL, which requests and urllib3 wrap."""
    *_, found = _causes(error)
    return str(getattr(found, "strerror", None) or found)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, and those that it wraps."""
    yield error
    inner = [getattr(error, "reason", None), *error.args, error.__cause__]
    found = next((each for each in inner if isinstance(each, BaseException)), None)
    if found is not None:
        yield from _causes(found)


def _complaint(document: Record, explained: Explained) -> list[str]:
    """Return an error response as lines: the option or field, and the rule, of each problem."""
    match document:
        case {"detail": str(detail)}:
            return [detail]
        case {"errors": [_, *_] as errors}:
            said = [(each.get("path"), str(each.get("message"))) for each in errors]
            return [explained(path, rule) if path else rule for path, rule in said]
        case {"message": str(message), "hint": str(hint)}:
            return [message, hint]
        case {"message": str(message)}:
            return [message]
        case _:
            return ["the gateway gives no reason"]
