"""Client of a gateway's API for the modules of this collection."""

from __future__ import annotations

import json
import signal
from contextlib import contextmanager
from http.client import HTTPException
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlencode

from ansible.module_utils.basic import env_fallback
from ansible.module_utils.urls import ConnectionError as TlsError
from ansible.module_utils.urls import open_url

_PAGE_SIZE = 2000


def make_argument_spec(**options):
    """Return the argument specification of a module: its own options, and those of the gateway."""
    return {
        "gateway_url": {"type": "str", "fallback": (env_fallback, ["GATEWAY_URL"])},
        "gateway_ca": {"type": "path", "fallback": (env_fallback, ["GATEWAY_CA"])},
        "gateway_username": {"type": "str", "fallback": (env_fallback, ["GATEWAY_USER"])},
        "gateway_password": {
            "type": "str",
            "no_log": True,
            "fallback": (env_fallback, ["GATEWAY_PASSWORD"]),
        },
        "gateway_token": {"type": "str", "no_log": True, "fallback": (env_fallback, ["GATEWAY_TOKEN"])},
        "gateway_timeout": {"type": "int", "default": 30},
        **options,
    }


class GatewayError(Exception):
    """Error of a request. `status` is the status of the response; None if there was no response. `errors` are
    the fields that the gateway refuses, each with `path` and `message`."""

    def __init__(self, message, status=None, errors=()):
        super().__init__(message)
        self.status = status
        self.errors = list(errors)


class Response(NamedTuple):
    """Response of the API: the data of the envelope, and the ETag for a later request."""

    data: object
    etag: str | None


class Gateway:
    """The API of the gateway that the options of a module name."""

    def __init__(self, params):
        """Check the options of the gateway. Raises GatewayError if an option is missing or invalid."""
        self.url = (params["gateway_url"] or "").rstrip("/")
        if not self.url:
            raise GatewayError("gateway_url is required: set the option or the variable GATEWAY_URL")
        if not self.url.startswith("https://"):
            raise GatewayError(f"gateway_url must be https://HOST:PORT, not {self.url}")
        if params["gateway_timeout"] < 1:
            raise GatewayError("gateway_timeout must be at least 1 second")
        self._credentials = {
            "username": params["gateway_username"],
            "password": params["gateway_password"],
        }
        self._token = params["gateway_token"]
        if self._token is None and None in self._credentials.values():
            raise GatewayError(
                "gateway_username and gateway_password are required, or gateway_token: set these options, or "
                "the variables GATEWAY_USER and GATEWAY_PASSWORD, or GATEWAY_TOKEN"
            )
        self._ca = params["gateway_ca"]
        self._timeout = params["gateway_timeout"]

    def get(self, path, **query):
        """Return the data of a GET request. Query parameters whose value is None are not sent. Raises
        GatewayError if the request fails."""
        query = urlencode({name: value for name, value in query.items() if value is not None})
        return self.request("GET", f"{path}?{query}" if query else path).data

    def list_pages(self, path, key, **query):
        """Yield the pages of a list, each as a list of records. `key` is the name of the list in the data of
        the response. Raises GatewayError if a request fails."""
        cursor = None
        while True:
            page = self.get(path, **query, limit=_PAGE_SIZE, cursor=cursor)
            yield page[key]
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def request(self, method, path, body=None, if_match=None):
        """Send a request, and return the response. `body` is sent as JSON, and `if_match` is the ETag that
        must be current. Raises GatewayError if the request fails."""
        if self._token is None:
            self._token = self._send("POST", "/auth/login", self._credentials, {}).data["access_token"]
        headers = {"Authorization": f"Bearer {self._token}"}
        if if_match is not None:
            headers["If-Match"] = if_match
        return self._send(method, path, body, headers)

    def _send(self, method, path, body, headers):
        try:
            with _deadline(self._timeout):
                response = open_url(
                    f"{self.url}/api/v1{path}",
                    method=method,
                    data=None if body is None else json.dumps(body).encode(),
                    headers={"Content-Type": "application/json", **headers},
                    timeout=self._timeout,
                    ca_path=self._ca,
                    # Proxies and passwords of the environment are not meant for a gateway.
                    use_proxy=False,
                    use_netrc=False,
                    follow_redirects="none",
                    http_agent="subscriber_gateway.api (Ansible)",
                )
                content = response.read()
        except HTTPError as error:
            raise self._make_error(error) from error
        except (OSError, HTTPException, TlsError) as error:
            reason = getattr(error, "reason", None) or error
            raise GatewayError(f"{self.url}: no response to {method} {path}: {reason}") from error
        document = _parse(content)
        # The response to a login has no envelope.
        if not {"status", "access_token"} & document.keys():
            raise GatewayError(f"{self.url}: the response to {method} {path} is not from a gateway")
        return Response(
            document.get("data") if "status" in document else document, response.headers.get("ETag")
        )

    def _make_error(self, response):
        """Return the GatewayError for an error response."""
        try:
            with _deadline(self._timeout):
                document = _parse(response.read())
        except (OSError, HTTPException):
            document = {}
        errors = document.get("errors") or []
        lines = [
            f"{each['path']}: {each['message']}" if each.get("path") else each["message"] for each in errors
        ]
        if not lines:
            reason = document.get("detail") or document.get("message") or "the gateway gives no reason"
            lines = [reason, *filter(None, [document.get("hint")])]
        if after := response.headers.get("Retry-After"):
            lines.append(f"try again in {after} s")
        return GatewayError(f"{self.url}: {'; '.join(lines)} (status {response.code})", response.code, errors)


def run(module, act):
    """Call `act` with the gateway of the module, and end the module with the result or the error."""
    try:
        result = act(Gateway(module.params))
    except GatewayError as error:
        module.fail_json(msg=str(error), status=error.status, errors=error.errors)
    module.exit_json(**result)


@contextmanager
def _deadline(seconds):
    """Raise TimeoutError in the block after this time: the timeout of a socket ends only a single read."""

    def end(number, frame):
        raise TimeoutError(f"the deadline of {seconds} s is over")

    former = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, former)


def _parse(content):
    """Return the object of a response; an empty one if the content is not a JSON object."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
