"""Lines of a log: one a message, which no text can break or colour, and from which each text is read back."""

import json
import logging
import os
import re
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_api.base.http import ROLE_KEY, USER_KEY, choose_log_level, make_log_fields
from gateway_contract.base.logs import FORMATS, LineFormatter, format_key_value, install, make_extra
from gateway_contract.base.variables import BadSetting, log_format
from tests.support.log_lines import REQUEST, is_printable_ascii, parsed

nasty = st.text(st.characters(), max_size=40) | st.sampled_from(
    ["\n", "\r\n", "\x1b[31m", "\u2028", "\u2029", "\x85", "\u202e", "\ud800", "-", '"', "\\", "a=b", ""]
)
formats = pytest.mark.parametrize("format", FORMATS)


def line_of(message: str, *arguments: object, format: str = "keyvalue", **more: Any) -> str:
    record = logging.getLogger("gateway_api.test").makeRecord(
        "gateway_api.test", logging.ERROR, __file__, 1, message, arguments, more.pop("exc_info", None), **more
    )
    return LineFormatter(FORMATS[format]).format(record)


def whole(text: str) -> str:
    """The text with its halves of surrogate pairs, which are no text, as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


@given(nasty, nasty)
def test_any_text_is_one_line_of_printable_ascii_and_read_back_as_it_was(first: str, second: str) -> None:
    fields = {"first": whole(first), "second": whole(second)}
    assert parsed(format_key_value(fields)) == fields
    for format in FORMATS:
        assert is_printable_ascii(line_of("%s", first, format=format))
    assert json.loads(line_of("%s", first or "x", format="json"))["message"] == (whole(first) or "x")
    line = line_of("message", extra=make_extra(path=f"{first} status=200"))
    assert list(parsed(line)) == ["time", "level", "logger", "path", "message"]


def test_a_message_has_time_level_and_logger() -> None:
    fields = parsed(line_of("cannot %s", "go on"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", fields.pop("time") or "")
    assert fields == {"level": "error", "logger": "gateway_api.test", "message": "cannot go on"}


@formats
def test_a_traceback_stays_in_its_line_which_journald_does_not_cut(format: str) -> None:
    for length in (1, 100_000):
        try:
            raise ValueError("over\nlines" * length)
        except ValueError:
            more = make_extra(path="z" * length)
            line = line_of("y" * length, format=format, exc_info=sys.exc_info(), extra=more)
        assert is_printable_ascii(line)
        assert len(line) < 48 * 1024
        fields = json.loads(line) if format == "json" else parsed(line)
        # The end has the error.
        assert fields["traceback"].endswith("over\nlines")
        assert fields["traceback"].startswith("Traceback") is (length == 1)


def test_a_record_of_the_audit_log_is_not_cut() -> None:
    assert parsed(line_of("x", extra=make_extra(record="r" * 5000)))["record"] == "r" * 5000


@formats
def test_a_line_for_the_journal_begins_with_its_priority(format: str) -> None:
    priorities = {"DEBUG": 7, "INFO": 6, "WARNING": 4, "ERROR": 3, "CRITICAL": 2}
    for level, priority in priorities.items():
        record = logging.makeLogRecord({"levelno": getattr(logging, level), "msg": "x"})
        line = LineFormatter(FORMATS[format], for_journal=True).format(record)
        assert line == f"<{priority}>" + LineFormatter(FORMATS[format]).format(record)


def test_only_lines_that_go_to_the_journal_have_priorities() -> None:
    program = (
        "import logging; from gateway_contract.base import logs; logs.install('keyvalue');"
        "logging.getLogger('x').error('failed')"
    )
    command = [sys.executable, "-c", program]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        there = os.fstat(theirs.fileno())
        environment = {**os.environ, "JOURNAL_STREAM": f"{there.st_dev}:{there.st_ino}"}
        subprocess.run(command, env=environment, stderr=theirs, check=True)
        assert ours.recv(4096).startswith(b"<3>time=")
        elsewhere = subprocess.run(command, env=environment, capture_output=True, check=True)
        assert elsewhere.stderr.startswith(b"time=")


@pytest.mark.parametrize(
    ("method", "path", "poll", "status", "level"),
    [
        ("GET", "/api/v1/health", "", 200, logging.DEBUG),
        ("GET", "/api/v1/health", "", 500, logging.INFO),
        ("HEAD", "/metrics", "", 200, logging.DEBUG),
        ("GET", "/api/v1/system/version", "", 400, logging.INFO),
        ("GET", "/api/v1/interfaces", "1", 200, logging.DEBUG),
        ("GET", "/api/v1/interfaces", "1", 401, logging.INFO),
        ("GET", "/api/v1/interfaces", "", 200, logging.INFO),
        ("GET", "/api/v1/system/config/compare", "1", 304, logging.DEBUG),
        ("GET", "/api/v1/system/config", "1", 200, logging.INFO),
        ("DELETE", "/api/v1/subscribers/7", "1", 200, logging.INFO),
    ],
)
def test_a_poll_that_succeeds_is_for_debugging(
    method: str, path: str, poll: str, status: int, level: int
) -> None:
    environ = {"REQUEST_METHOD": method, "PATH_INFO": path} | ({"HTTP_X_POLL": poll} if poll else {})
    assert choose_log_level(environ, status) == level
    assert choose_log_level({"REQUEST_METHOD": "GET"}, 400) == logging.INFO


def request_line(created: float, format: str, **more: Any) -> str:
    environ = {
        USER_KEY: more.get("user"),
        ROLE_KEY: None,
        "REMOTE_ADDR": "192.0.2.7",
        "REQUEST_METHOD": "GET",
        "PATH_INFO": more.get("path", "/x").encode("utf-8", "surrogatepass").decode("latin-1"),
        "QUERY_STRING": "token=hunter2",
    }
    record = logging.LogRecord("gunicorn.access", logging.INFO, "", 0, "", (), None)
    record.created = created
    record.fields = make_log_fields(
        environ, request_id=more.get("request_id"), status=200, size=1 << 40, seconds=more.get("seconds")
    )
    return LineFormatter(FORMATS[format]).format(record)


def test_a_request_has_its_fields_in_both_formats() -> None:
    # A part of a microsecond before a second, and the text "-", which is not null.
    line = request_line(1_767_225_599.9999998, "keyvalue", user="-", seconds=0.25)
    assert line == (
        "time=2026-01-01T00:00:00.000Z level=info logger=gunicorn.access request_id=- "
        'user="-" role=- address=192.0.2.7 method=GET path=/x status=200 duration_seconds=0.250000 '
        "bytes=1099511627776"
    )
    fields = json.loads(request_line(1_767_225_599.25, "json", user="a b", request_id="r"))
    assert list(fields) == ["time", "level", "logger", *REQUEST]
    assert fields["time"] == "2025-12-31T23:59:59.250Z"
    assert (fields["user"], fields["request_id"], fields["role"]) == ("a b", "r", None)
    assert (fields["status"], fields["duration_seconds"]) == (200, None)


def test_a_formatter_keeps_nothing_of_the_line_before() -> None:
    formatter = LineFormatter(FORMATS["keyvalue"])
    for created, shown in ((10.0, "10.000"), (10.25, "10.250"), (12.0, "12.000"), (11.5, "11.500")):
        record = logging.makeLogRecord({"msg": shown, "created": created})
        assert formatter.format(record).startswith(f"time=1970-01-01T00:00:{shown}Z ")


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/a b\n\x1b[31m", "/a%20b%0A%1B%5B31m"),
        ("/é\u202e", "/%C3%A9%E2%80%AE"),
        ("/x/whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "/x/********"),
        ("/" + "x" * 2047, "/" + "x" * 2047),
        ("/" + "x" * 2048, "/" + "x" * 2047 + "..."),
    ],
    ids=lambda text: text[:12],
)
def test_a_path_is_escaped_masked_and_cut(path: str, shown: str) -> None:
    assert parsed(request_line(0.0, "keyvalue", path=path))["path"] == shown


@pytest.fixture
def said() -> Iterator[list[str]]:
    """The lines that the process writes by other ways than loggers of its own; all is put back after."""
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


def test_warnings_and_the_ends_of_threads_and_of_the_process_are_lines(said: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.warn("old\nhat", DeprecationWarning, stacklevel=1)
    thread = threading.Thread(target=lambda: 1 // 0)
    thread.start()
    thread.join()
    sys.excepthook(ValueError, ValueError("odd"), None)
    # Ctrl-C is none.
    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    warning, end_of_thread, end = map(parsed, said)
    assert "old\nhat" in (warning["message"] or "")
    assert "ZeroDivisionError" in (end_of_thread["traceback"] or "")
    assert end["traceback"] == "ValueError: odd"


def test_key_value_is_the_usual_format_and_an_unknown_one_is_named() -> None:
    assert log_format({"GATEWAY_API_LOG_FORMAT": ""}) == "keyvalue"
    assert log_format({"GATEWAY_API_LOG_FORMAT": "json"}) == "json"
    with pytest.raises(BadSetting, match="GATEWAY_API_LOG_FORMAT"):
        log_format({"GATEWAY_API_LOG_FORMAT": "xml"})
