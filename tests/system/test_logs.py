"""Log lines: one a request and one a message, which nothing that a client sends can break or colour."""

import json
import logging
import os
import random
import re
import secrets
import socket
import ssl
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from gateway_api.base.http import ROLE, USER, level_of_request, log_fields
from gateway_api.base.logs import FORMATS, LineFormatter, extra, install, key_value, masked_text
from gateway_api.base.settings import BadSetting, log_format
from tests.support.stack import Api, running_api, running_stack, wait_for

WORD = r'(?P<name>[a-z_]+)=(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^ "=]+))'
REQUEST = ["request_id", "user", "role", "address", "method", "path", "status", "duration_seconds", "bytes"]

texts = st.text(st.characters(), max_size=40)
nasty = texts | st.sampled_from(
    ["\n", "\r\n", "\x1b[31m", "\u2028", "\u2029", "\x85", "\u202e", "\ud800", "-", '"', "\\", "a=b", ""]
)


def parsed(line: str) -> dict[str, str | None]:
    """The fields of a line of key=value. Fails for whatever else it may be."""
    fields: dict[str, str | None] = {}
    position = 0
    while position < len(line):
        match = re.compile(WORD, re.ASCII).match(line, position)
        assert match, line[position:]
        assert match["name"] not in fields
        quoted = match["quoted"]
        held = match["bare"] if quoted is None else json.loads(f'"{quoted}"')
        fields[match["name"]] = None if held == "-" and quoted is None else held
        position = match.end()
        assert line[position : position + 1] in ("", " ")
        position += 1
    return fields


def line_of(message: str, *arguments: object, format: str = "keyvalue", **more: Any) -> str:
    record = logging.getLogger("gateway_api.test").makeRecord(
        "gateway_api.test", logging.ERROR, __file__, 1, message, arguments, more.pop("exc_info", None), **more
    )
    return LineFormatter(FORMATS[format]).format(record)


def is_printable_ascii(line: str) -> bool:
    return all(" " <= character <= "~" for character in line)


# Lines


@given(nasty)
def test_any_text_is_one_line_of_printable_ascii(text: str) -> None:
    for format in FORMATS:
        assert is_printable_ascii(line_of("%s", text, format=format))


@given(nasty, nasty)
def test_a_text_is_read_back_from_key_value_as_it_was(first: str, second: str) -> None:
    fields = {"first": first, "second": second}
    # Halves of surrogate pairs are no text.
    whole = {name: held.encode("utf-8", "backslashreplace").decode() for name, held in fields.items()}
    assert parsed(key_value(whole)) == whole


@given(nasty)
def test_a_text_is_read_back_from_json_as_it_was(text: str) -> None:
    whole = text.encode("utf-8", "backslashreplace").decode()
    assert json.loads(line_of("%s", text or "x", format="json"))["message"] == (whole or "x")


@given(nasty)
def test_a_text_never_becomes_a_field_of_its_own(text: str) -> None:
    line = line_of("message", extra=extra(path=f"{text} status=200"))
    assert list(parsed(line)) == ["time", "level", "logger", "path", "message"]


def test_a_message_has_time_level_and_logger() -> None:
    fields = parsed(line_of("cannot %s", "go on"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", fields.pop("time") or "")
    assert fields == {"level": "error", "logger": "gateway_api.test", "message": "cannot go on"}


@pytest.mark.parametrize("format", FORMATS)
def test_a_traceback_stays_in_its_line(format: str) -> None:
    try:
        raise ValueError("over\nlines")
    except ValueError:
        line = line_of("failed", format=format, exc_info=sys.exc_info())
    assert is_printable_ascii(line)
    fields = json.loads(line) if format == "json" else parsed(line)
    assert fields["traceback"].startswith("Traceback")
    assert fields["traceback"].endswith("ValueError: over\nlines")


@pytest.mark.parametrize("format", FORMATS)
def test_a_line_is_shorter_than_journald_would_cut(format: str) -> None:
    try:
        raise ValueError("x" * 100_000)
    except ValueError:
        line = line_of("y" * 100_000, format=format, exc_info=sys.exc_info(), extra=extra(path="z" * 100_000))
    assert len(line) < 48 * 1024


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("level", "priority"),
    [("debug", 7), ("info", 6), ("warning", 4), ("error", 3), ("critical", 2)],
)
def test_a_line_for_the_journal_begins_with_its_priority(format: str, level: str, priority: int) -> None:
    record = logging.makeLogRecord({"levelno": getattr(logging, level.upper()), "msg": "x"})
    line = LineFormatter(FORMATS[format], for_journal=True).format(record)
    assert line == f"<{priority}>" + LineFormatter(FORMATS[format]).format(record)


def test_only_what_goes_to_the_journal_has_priorities() -> None:
    said = (
        "import logging; from gateway_api.base import logs; logs.install('keyvalue');"
        "logging.getLogger('x').error('failed')"
    )
    ours, theirs = socket.socketpair()
    with ours, theirs:
        there = os.fstat(theirs.fileno())
        environment = {**os.environ, "JOURNAL_STREAM": f"{there.st_dev}:{there.st_ino}"}
        subprocess.run([sys.executable, "-c", said], env=environment, stderr=theirs, check=True)
        assert ours.recv(4096).startswith(b"<3>time=")
        elsewhere = subprocess.run(
            [sys.executable, "-c", said], env=environment, capture_output=True, check=True
        )
        assert elsewhere.stderr.startswith(b"time=")


@pytest.mark.parametrize(
    ("environ", "status", "level"),
    [
        ({"PATH_INFO": "/api/v1/health"}, 200, logging.DEBUG),
        ({"PATH_INFO": "/api/v1/system/health"}, 200, logging.DEBUG),
        ({"PATH_INFO": "/metrics", "REQUEST_METHOD": "HEAD"}, 200, logging.DEBUG),
        ({"PATH_INFO": "/api/v1/system/status"}, 200, logging.DEBUG),
        ({"PATH_INFO": "/api/v1/system/version"}, 200, logging.DEBUG),
        ({"PATH_INFO": "/api/v1/system/version"}, 400, logging.INFO),
        ({"PATH_INFO": "/api/v1/interfaces", "HTTP_X_POLL": "1"}, 200, logging.DEBUG),
        ({"PATH_INFO": "/api/v1/system/config/compare", "HTTP_X_POLL": "1"}, 304, logging.DEBUG),
        ({"PATH_INFO": "/api/v1/system/config", "HTTP_X_POLL": "1"}, 200, logging.INFO),
        ({"PATH_INFO": "/api/v1/subscribers", "HTTP_X_POLL": "1"}, 200, logging.INFO),
        ({"PATH_INFO": "/api/v1/health"}, 500, logging.INFO),
        ({"PATH_INFO": "/api/v1/interfaces", "HTTP_X_POLL": "1"}, 401, logging.INFO),
        ({"PATH_INFO": "/api/v1/subscribers/7", "HTTP_X_POLL": "1"}, 404, logging.INFO),
        (
            {"PATH_INFO": "/api/v1/subscribers/7", "HTTP_X_POLL": "1", "REQUEST_METHOD": "DELETE"},
            200,
            logging.INFO,
        ),
        ({"PATH_INFO": "/api/v1/interfaces"}, 200, logging.INFO),
        ({}, 400, logging.INFO),
    ],
    ids=str,
)
def test_a_poll_that_goes_well_is_for_debugging(environ: dict[str, str], status: int, level: int) -> None:
    assert level_of_request({"REQUEST_METHOD": "GET", **environ}, status) == level


def test_null_is_told_from_a_dash() -> None:
    assert key_value({"user": None, "role": "-"}) == 'user=- role="-"'


def plain_line(created: float, fields: dict[str, Any], path: str, format: str) -> str:
    """The line of a request, by the most direct way: every step for every field, nothing kept."""
    at = datetime.fromtimestamp(created, UTC).isoformat(timespec="milliseconds")
    every = {"time": at.replace("+00:00", "Z"), "level": "info", "logger": "gunicorn.access", **fields}
    every["path"] = quote(masked_text(path), safe="/:@*", encoding="latin-1")
    for name, held in every.items():
        if isinstance(held, str):
            cut = held[:2048] + "..." if len(held) > 2048 else held
            every[name] = cut.encode("utf-8", "backslashreplace").decode()
    if format == "json":
        return json.dumps(every, separators=(",", ":"))
    words = []
    for name, held in every.items():
        if held is None:
            word = "-"
        elif isinstance(held, float):
            word = f"{held:.6f}"
        elif re.fullmatch("[A-Za-z0-9_.:/@%+,~-]+", str(held)) and held != "-":
            word = str(held)
        else:
            word = json.dumps(held)
        words.append(f"{name}={word}")
    return " ".join(words)


def test_the_lines_of_many_hostile_requests_are_those_of_the_plain_way() -> None:
    chosen = random.Random(20)
    pieces = [
        "\n",
        "\r",
        "\x1b[31m",
        "\x00",
        "\x7f",
        "\x85",
        '"',
        "\\",
        "\u2028",
        "\u202e",
        "\ud800",
        "\udfff",
    ]
    pieces += ["-", " ", "=", "%", "\xe9", "\U0001f600", "a", "admin", "/api/v1/subscribers/", "7", "'", "?"]
    pieces += ["?token=abc123", "whsec_abc/+", "eyJhbGci.eyJzdWIi.c2ln", "$2b$12$abcdefghijklmnopqrstuv"]

    def text() -> str:
        made = "".join(chosen.choices(pieces, k=chosen.randrange(4)))
        # Around the length at which a text is cut.
        return made + "x" * chosen.choice((2047, 2048, 2049)) if chosen.random() < 0.01 else made

    formatters = {format: LineFormatter(encode) for format, encode in FORMATS.items()}
    now = 1_767_225_599.0
    for _ in range(100_000):
        # Also a clock that stands, goes back, or is a part of a microsecond before a second.
        now += chosen.choice((0, 0.0004, 0.25, 1, -2))
        created = chosen.choice((now, int(now) + 0.9999998, int(now) + 0.9999994, int(now) - 0.0005))
        path = text().encode("utf-8", "surrogatepass").decode("latin-1")
        fields = {
            "request_id": chosen.choice((None, text())),
            "user": chosen.choice((None, text())),
            "role": chosen.choice((None, "admin", text())),
            "address": text(),
            "method": text(),
            "path": None,
            "status": chosen.randrange(200, 600),
            "duration_seconds": chosen.choice((None, chosen.random())),
            "bytes": chosen.randrange(1 << 40),
        }
        given_fields = log_fields(
            {
                USER: fields["user"],
                ROLE: fields["role"],
                "REMOTE_ADDR": fields["address"],
                "REQUEST_METHOD": fields["method"],
                "PATH_INFO": path,
                "QUERY_STRING": "token=" + path,
            },
            request_id=fields["request_id"],
            status=fields["status"],
            size=fields["bytes"],
            seconds=fields["duration_seconds"],
        )
        record = logging.LogRecord("gunicorn.access", logging.INFO, "", 0, "", (), None)
        record.created, record.fields = created, given_fields
        format = chosen.choice(list(FORMATS))
        assert formatters[format].format(record) == plain_line(created, fields, path, format)


def test_numbers_are_numbers_in_json() -> None:
    line = json.loads(line_of("x", format="json", extra=extra(status=200, duration_seconds=0.25)))
    assert (line["status"], line["duration_seconds"]) == (200, 0.25)


@pytest.fixture
def said() -> Iterator[list[str]]:
    """What the process says by other ways than loggers of its own, with everything put back after."""
    root, lines = logging.getLogger(), []

    class Keeps(logging.StreamHandler[Any]):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    before = root.handlers[:], sys.excepthook, threading.excepthook
    switches = ("_srcfile", "logThreads", "logProcesses", "logMultiprocessing")
    set_before = {name: getattr(logging, name) for name in switches}
    root.handlers[:] = [Keeps()]
    install("keyvalue")
    try:
        yield lines
    finally:
        root.handlers[:], sys.excepthook, threading.excepthook = before
        vars(logging).update(set_before)
        logging.captureWarnings(False)


def test_a_warning_is_a_line(said: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.warn("old\nhat", DeprecationWarning, stacklevel=1)
    assert "old\nhat" in (parsed(said[0])["message"] or "")


def test_what_ends_a_thread_is_a_line(said: list[str]) -> None:
    thread = threading.Thread(target=lambda: 1 // 0)
    thread.start()
    thread.join()
    assert "ZeroDivisionError" in (parsed(said[0])["traceback"] or "")


def test_what_ends_the_process_is_a_line(said: list[str]) -> None:
    sys.excepthook(ValueError, ValueError("odd"), None)
    assert parsed(said[0])["traceback"] == "ValueError: odd"


def test_ctrl_c_is_nothing_to_speak_of(said: list[str]) -> None:
    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert said == []


@pytest.mark.parametrize("value", ["", "keyvalue"])
def test_key_value_is_the_usual_format(value: str) -> None:
    assert log_format({"GATEWAY_API_LOG_FORMAT": value}) == "keyvalue"


def test_a_format_that_is_none_is_named() -> None:
    with pytest.raises(BadSetting, match="GATEWAY_API_LOG_FORMAT"):
        log_format({"GATEWAY_API_LOG_FORMAT": "xml"})


# A running API


@dataclass
class Logged:
    """A stack of its own, and all that the API in it has said."""

    api: Api
    state: Path

    def lines(self) -> list[str]:
        text = (self.state / "log").read_bytes().decode("ascii")
        return [line for line in text.split("\n") if line.startswith("time=")]

    def of(self, request_id: str) -> list[dict[str, str | None]]:
        """The lines with this request id; there is at least one."""

        def found() -> list[dict[str, str | None]]:
            fields = map(parsed, self.lines())
            return [line for line in fields if line.get("request_id") == request_id]

        found_lines: list[dict[str, str | None]] = wait_for(f"the line of {request_id}", found)
        return found_lines

    def raw(self, sent: bytes) -> bytes:
        """What comes back for these bytes until the end of the connection."""
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


def ask(logged: Logged, method: str, path: str, role: str | None = "admin", **more: Any) -> dict[str, Any]:
    """The one line of a request."""
    request_id = secrets.token_hex(8)
    headers = {"X-Request-ID": request_id, **more.pop("headers", {})}
    logged.api.send(method, path, role, headers=headers, **more)
    (line,) = logged.of(request_id)
    return line


def test_a_request_is_one_line(logged: Logged) -> None:
    line = ask(logged, "GET", "/subscribers/1", "operator")
    assert list(line) == ["time", "level", "logger", *REQUEST]
    assert (line["user"], line["role"], line["address"]) == ("operator", "operator", "127.0.0.1")
    assert (line["method"], line["path"]) == ("GET", "/api/v1/subscribers/1")
    assert line["status"] == "200"
    assert 0 < float(line["duration_seconds"]) < 5
    assert int(line["bytes"]) > 100


def test_polls_that_go_well_are_not_logged_and_others_are(logged: Logged) -> None:
    ids = [secrets.token_hex(8) for _ in range(4)]
    for id, path, headers in zip(
        ids,
        ("/health", "/interfaces?limit=1", "/interfaces?x=1", "/interfaces?limit=1"),
        ({}, {"X-Poll": "1"}, {"X-Poll": "1"}, {}),
        strict=True,
    ):
        logged.api.send("GET", path, headers={"X-Request-ID": id, **headers})
    assert [line["status"] for id in ids[2:] for line in logged.of(id)] == ["400", "200"]
    # Lines of one worker come in the order of its answers, and one connection has one worker.
    assert not [line for line in logged.lines() if ids[0] in line or ids[1] in line]


def test_the_core_writes_the_same_lines(logged: Logged) -> None:
    (line,) = [fields for fields in map(parsed, logged.lines()) if fields["logger"] == "gateway_api.core"]
    assert line["level"] == "info"
    assert str(line["message"]).startswith("serving 5 sessions at ")


@pytest.mark.parametrize("token", ["", "x.y.z", "expired"])
def test_whoever_has_no_token_that_holds_is_nobody(logged: Logged, token: str) -> None:
    line = ask(logged, "GET", "/qos", None, headers={"Authorization": f"Bearer {token}"})
    assert (line["status"], line["user"], line["role"]) == ("401", None, None)


def test_whoever_may_not_is_named(logged: Logged) -> None:
    line = ask(logged, "DELETE", "/subscribers/1", "operator")
    assert (line["status"], line["user"], line["role"]) == ("403", "operator", "operator")


def test_whoever_logs_in_is_named(logged: Logged) -> None:
    body = {"username": "admin", "password": logged.api.environment["ADMIN_PASSWORD"]}
    assert ask(logged, "POST", "/auth/login", None, json=body)["user"] == "admin"


def test_whoever_fails_to_log_in_is_nobody(logged: Logged) -> None:
    assert (
        ask(logged, "POST", "/auth/login", None, json={"username": "admin", "password": "x"})["user"] is None
    )


def test_a_stream_is_one_line_when_it_ends(logged: Logged) -> None:
    headers = {"Authorization": f"Bearer {logged.api.token('admin')}", "X-Request-ID": "a-stream"}
    url = f"{logged.api.url}/api/v1/events/subscribers"
    verify = logged.api.environment["GATEWAY_CA"]
    with requests.get(url, headers=headers, verify=verify, stream=True, timeout=60) as answer:
        assert answer.status_code == 200
    # Only a write tells that nobody reads any more.
    for id in (2, 3):
        time.sleep(0.5)
        logged.api.send("DELETE", f"/subscribers/{id}")
    (line,) = logged.of("a-stream")
    assert (line["status"], line["user"], line["path"]) == ("200", "admin", "/api/v1/events/subscribers")
    # The second write tells that nobody reads the first.
    assert float(line["duration_seconds"]) >= 0.5
    assert int(line["bytes"]) > 100


@pytest.mark.parametrize(
    "sent",
    [b"GARBAGE", b"GET /api/v1/health HTTP/9.9", b"GET / HTTP/1.1\r\nX-Evil : hunter2\x1b[31m", b"\x00\x1b"],
)
def test_a_request_that_is_no_http_is_one_line(logged: Logged, sent: bytes) -> None:
    answer = logged.raw(sent + b"\r\nHost: x\r\nConnection: close\r\n\r\n")
    match = re.search(rb"X-Request-ID: (\w+)", answer)
    assert match, answer
    (line,) = logged.of(match[1].decode())
    assert [name for name in line if name not in ("time", "level", "logger")] == [*REQUEST, "refused"]
    assert line["status"] == answer.split(b" ")[1].decode()


EVIL = [
    *(
        "%0a",
        "%0d%0atime=1 status=200",
        "%1b[31m",
        "%c2%85",
        "%e2%80%a8",
        "%e2%80%ae",
        "%ff%fe",
        "%22",
        "%00",
    ),
    *("%22%20user=%22admin", "%7f", "%5c", "=", "%ef%bb%bf", "%c2%9b31m"),
]


@pytest.mark.parametrize("path", EVIL)
def test_a_path_cannot_break_or_colour_a_line(logged: Logged, path: str) -> None:
    line = ask(logged, "GET", f"/x{path.replace(' ', '%20')}")
    assert (line["user"], line["status"], len(line)) == (None, "404", len(REQUEST) + 3)


def test_a_header_cannot_break_or_colour_a_line(logged: Logged) -> None:
    line = ask(
        logged,
        "GET",
        "/openapi.json",
        None,
        headers={"User-Agent": "\u202e\x85".encode(), "Referer": '" a="'},
    )
    assert len(line) == len(REQUEST) + 3


def test_a_query_and_a_token_are_not_logged(logged: Logged) -> None:
    mark = secrets.token_hex(8)
    headers = {"Authorization": f"Bearer {mark}", "Cookie": mark, "Referer": mark, "User-Agent": mark}
    line = ask(logged, "GET", "/qos", None, params={"token": mark, mark: "x"}, headers=headers)
    assert line["path"] == "/api/v1/qos"
    assert mark not in (logged.state / "log").read_text()


@pytest.mark.parametrize(
    "head",
    [
        b"GET /api/v1/qos HTTP/1.1\r\nHost: x\r\nAuthorization : Bearer %s",
        b"GET /api/v1/qos HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\x01",
        b"GET /api/v1/qos HTTP/1.1\r\nHost: x\r\nAuthorization Bearer %s",
        b"GET /api/v1/qos?token=%s HTTP/9.9\r\nHost: x",
        b"GET /api/v1/qos?token=%s\r\nHost: x",
        b"GET /api/v1/qos HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: %s",
        b"POST /api/v1/auth/login HTTP/1.1\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\nzz%s",
    ],
)
def test_a_token_in_a_broken_request_is_not_logged(logged: Logged, head: bytes) -> None:
    mark = secrets.token_hex(8)
    before = len(logged.lines())
    logged.raw(head % mark.encode() + b"\r\nConnection: close\r\n\r\n")
    wait_for("the request's line", lambda: len(logged.lines()) > before)
    assert mark not in (logged.state / "log").read_text()


def test_a_password_is_not_logged(logged: Logged) -> None:
    mark = secrets.token_hex(8)
    for body in ({"username": mark, "password": mark}, {"username": mark}, {mark: mark}, mark, [mark]):
        ask(logged, "POST", "/auth/login", None, json=body)
    assert mark not in (logged.state / "log").read_text()


def test_a_client_without_tls_is_one_line(logged: Logged) -> None:
    before = len(logged.lines())
    with socket.create_connection(("127.0.0.1", logged.port), timeout=60) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
        wait_for("the line", lambda: len(logged.lines()) > before)
    assert parsed(logged.lines()[-1])["message"] == "no TLS from 127.0.0.1: HTTP_REQUEST"
    assert "Traceback" not in (logged.state / "log").read_text()


def test_many_requests_at_once_are_a_line_each(logged: Logged) -> None:
    ids = [[f"at-once-{number}-{each}" for each in range(50)] for number in range(8)]

    def send(mine: list[str]) -> None:
        with requests.Session() as session:
            session.trust_env, session.verify = False, logged.api.environment["GATEWAY_CA"]
            for request_id in mine:
                url = f"{logged.api.url}/api/v1/{'x' * 2000}"
                session.get(url, headers={"X-Request-ID": request_id}, timeout=60)

    threads = [threading.Thread(target=send, args=(mine,)) for mine in ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for mine in ids:
        # A line comes after its response.
        logged.of(mine[-1])
    # Whatever wasn't whole would not be parsed.
    seen = [parsed(line).get("request_id") for line in logged.lines()]
    assert sorted(id for id in seen if id and id.startswith("at-once-")) == sorted(
        id for mine in ids for id in mine
    )


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory, logged: Logged) -> Iterator[tuple[str, Path]]:
    """The address of an API without a core, which logs in JSON; and its log."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GATEWAY_API_LOG_FORMAT", "json")
        with running_api(tmp_path_factory.mktemp("none") / "core.sock", logged.state) as url:
            yield url, logged.state / "api.log"


def test_in_json_every_line_is_an_object(faults: tuple[str, Path], logged: Logged) -> None:
    url, log = faults
    verify = logged.api.environment["GATEWAY_CA"]
    requests.get(f"{url}/api/v1/x%0a%1b", headers={"X-Request-ID": "json"}, verify=verify, timeout=60)
    requests.get(f"{url}/api/v1/health", headers={"X-Request-ID": "core"}, verify=verify, timeout=60)
    wait_for("the lines", lambda: log.read_text().count('"request_id":"core"') == 2)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert all(is_printable_ascii(line) for line in log.read_text().splitlines())
    assert [list(line) for line in lines if line.get("request_id") == "json"] == [
        ["time", "level", "logger", *REQUEST]
    ]
    assert {line["logger"] for line in lines} >= {"gunicorn", "gunicorn.access", "gateway_api.web.errors"}


def test_a_fault_is_told_with_its_request_id(faults: tuple[str, Path], logged: Logged) -> None:
    url, log = faults
    verify = logged.api.environment["GATEWAY_CA"]
    requests.get(f"{url}/api/v1/health", headers={"X-Request-ID": "fault"}, verify=verify, timeout=60)
    wait_for("the lines", lambda: log.read_text().count('"request_id":"fault"') == 2)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    fault, request = (line for line in lines if line.get("request_id") == "fault")
    assert fault["message"].startswith("GET /api/v1/health: cannot call")
    assert request["status"] == 500
