"""The log of a running API: a line for each request, which no client can break or colour."""

import json
import re
import secrets
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.support.log_lines import REQUEST, is_printable_ascii, parsed
from tests.support.stack import Api, running_api, running_stack, wait_for


@dataclass
class Logged:
    """A stack of its own, and its log."""

    api: Api
    state: Path

    def text(self) -> str:
        return (self.state / "log").read_bytes().decode("ascii")

    def lines(self) -> list[str]:
        return [line for line in self.text().split("\n") if line.startswith("time=")]

    def of(self, request_id: str) -> dict[str, str | None]:
        """The one line with this request id."""

        def found() -> list[dict[str, str | None]]:
            return [line for line in map(parsed, self.lines()) if line.get("request_id") == request_id]

        (line,) = wait_for(f"the line of {request_id}", found)
        return dict(line)

    def ask(self, method: str, path: str, role: str | None = "admin", **more: Any) -> dict[str, Any]:
        """The line of a request."""
        request_id = secrets.token_hex(8)
        headers = {"X-Request-ID": request_id, **more.pop("headers", {})}
        self.api.send(method, path, role, headers=headers, **more)
        return self.of(request_id)

    def raw(self, sent: bytes) -> bytes:
        """The bytes that come back for these until the end of the connection."""
        context = ssl.create_default_context(cafile=self.api.environment["GATEWAY_CA"])
        with (
            socket.create_connection(("127.0.0.1", self.port), timeout=60) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as tls,
        ):
            tls.sendall(sent)
            answer = b""
            while data := tls.recv(65536):
                answer += data
            return answer

    @property
    def port(self) -> int:
        return int(self.api.url.rpartition(":")[2])


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Logged]:
    state = tmp_path_factory.mktemp("logged")
    with running_stack(state, sessions=5) as (api, _):
        yield Logged(api, state)


def test_a_request_is_one_line_with_its_user(logged: Logged) -> None:
    line = logged.ask("GET", "/subscribers/1", "operator")
    assert list(line) == ["time", "level", "logger", *REQUEST]
    assert (line["user"], line["role"], line["address"]) == ("operator", "operator", "127.0.0.1")
    assert (line["method"], line["path"], line["status"]) == ("GET", "/api/v1/subscribers/1", "200")
    assert float(line["duration_seconds"]) > 0
    assert int(line["bytes"]) > 100
    line = logged.ask("DELETE", "/subscribers/1", "operator")
    assert (line["status"], line["user"], line["role"]) == ("403", "operator", "operator")
    body = {"username": "admin", "password": logged.api.environment["ADMIN_PASSWORD"]}
    assert logged.ask("POST", "/auth/login", None, json=body)["user"] == "admin"


def test_polls_that_succeed_are_not_logged_and_others_are(logged: Logged) -> None:
    polls = [("/health", {}), ("/interfaces?limit=1", {"X-Poll": "1"}), ("/interfaces?x=1", {"X-Poll": "1"})]
    ids = [secrets.token_hex(8) for _ in polls]
    for id, (path, headers) in zip(ids, polls, strict=True):
        logged.api.send("GET", path, headers={"X-Request-ID": id, **headers})
    assert logged.of(ids[2])["status"] == "400"
    # Lines of one worker come in the order of its answers, and one connection has one worker.
    assert not [line for line in logged.lines() if ids[0] in line or ids[1] in line]


def test_a_stream_is_one_line_when_it_ends(logged: Logged) -> None:
    headers = {"Authorization": f"Bearer {logged.api.token('admin')}", "X-Request-ID": "a-stream"}
    url, verify = f"{logged.api.url}/api/v1/events/subscribers", logged.api.environment["GATEWAY_CA"]
    with requests.get(url, headers=headers, verify=verify, stream=True, timeout=60) as answer:
        assert answer.status_code == 200
    ids = iter(range(2, 6))
    rate = {"rate_down": "5 mbit", "rate_up": "5 mbit"}

    def is_logged() -> bool:
        # Only a write tells that the client has gone.
        logged.api.send("PUT", f"/subscribers/{next(ids, 5)}/rate", json=rate)
        logged.api.send("DELETE", f"/subscribers/{next(ids, 5)}")
        return "request_id=a-stream" in logged.text()

    wait_for("the line", is_logged)
    line = logged.of("a-stream")
    assert (line["status"], line["user"], line["path"]) == ("200", "admin", "/api/v1/events/subscribers")


@pytest.mark.parametrize(
    "head",
    [
        b"GET /api/v1/qos HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\x1b[31m",
        b"GET /api/v1/qos?token=%s HTTP/9.9\r\nHost: x",
        b"GARBAGE %s",
        b"GET /api/v1/qos HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: %s",
        b"POST /api/v1/auth/login HTTP/1.1\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\nzz%s",
    ],
)
def test_a_broken_request_is_one_line_without_its_token(logged: Logged, head: bytes) -> None:
    mark = secrets.token_hex(8)
    answer = logged.raw(head % mark.encode() + b"\r\nConnection: close\r\n\r\n")
    match = re.search(rb"X-Request-ID: (\w+)", answer)
    assert match, answer
    line = logged.of(match[1].decode())
    assert line["status"] == answer.split(b" ")[1].decode()
    assert mark not in logged.text()


def test_queries_headers_and_passwords_are_not_logged(logged: Logged) -> None:
    mark = secrets.token_hex(8)
    headers = {"Authorization": f"Bearer {mark}", "Cookie": mark, "Referer": mark, "User-Agent": mark}
    line = logged.ask("GET", "/qos", None, params={"token": mark, mark: "x"}, headers=headers)
    assert (line["path"], line["status"], line["user"]) == ("/api/v1/qos", "401", None)
    assert logged.ask("POST", "/auth/login", None, json={"username": mark, "password": mark})["user"] is None
    assert mark not in logged.text()


def test_a_client_without_tls_is_one_line(logged: Logged) -> None:
    before = len(logged.lines())
    with socket.create_connection(("127.0.0.1", logged.port), timeout=60) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
        wait_for("the line", lambda: len(logged.lines()) > before)
    assert parsed(logged.lines()[-1])["message"] == "no TLS from 127.0.0.1, connection closed: HTTP_REQUEST"
    assert "Traceback" not in logged.text()


def test_in_json_every_line_is_an_object_and_a_fault_has_its_request_id(
    tmp_path: Path, logged: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAY_API_LOG_FORMAT", "json")
    log = logged.state / "api.log"
    with running_api(tmp_path / "core.sock", logged.state) as url:
        for path, id in (("x%0a%1b", "json"), ("health", "fault")):
            verify = logged.api.environment["GATEWAY_CA"]
            requests.get(f"{url}/api/v1/{path}", headers={"X-Request-ID": id}, verify=verify, timeout=60)
        wait_for("the lines", lambda: log.read_text().count('"request_id":"fault"') == 2)
    assert all(is_printable_ascii(line) for line in log.read_text().splitlines())
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    (request,) = (line for line in lines if line.get("request_id") == "json")
    assert list(request) == ["time", "level", "logger", *REQUEST]
    fault, request = (line for line in lines if line.get("request_id") == "fault")
    assert fault["message"].startswith("GET /api/v1/health failed: cannot call")
    assert (fault["logger"], request["logger"]) == ("gateway_api.web.errors", "gunicorn.access")
    assert request["status"] == 500
