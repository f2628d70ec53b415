"""Requests that must be rejected, and what holds for every response."""

import requests

NOBODY = {"detail": "Could not validate credentials"}


def assert_civil(answer: requests.Response) -> None:
    """Assert what holds for every response: no 500, no HTML, a request id and a known shape."""
    assert answer.status_code < 500, answer.text
    assert answer.headers["X-Request-ID"]
    assert_guarded(answer)
    if answer.url.endswith("/metrics") and answer.status_code == 200:
        return
    assert answer.headers["Content-Type"] == "application/json"
    document = answer.json()
    if answer.status_code in (401, 403):
        assert set(document) == {"detail"}
    elif answer.status_code >= 400:
        assert document["status"] == "error"
        assert isinstance(document["message"], str)
        assert set(document) <= {"status", "message", "errors"}


def assert_guarded(answer: requests.Response) -> None:
    """Assert that the response has the headers that restrict browsers and caches."""
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    kept = answer.url.endswith(("/docs", "/openapi.json")) and answer.status_code == 200
    assert answer.headers["Cache-Control"] == ("no-cache" if kept else "no-store")
    over_tls = answer.url.startswith("https:")
    assert answer.headers.get("Strict-Transport-Security") == ("max-age=31536000" if over_tls else None)
    assert "Server" not in answer.headers


def assert_invalid(answer: requests.Response, path: str) -> None:
    """Assert that the response is a 400 whose errors name the field and the rule."""
    assert answer.status_code == 400, answer.text
    problems = answer.json()["errors"]
    assert any(problem["path"] == path or problem["path"].startswith(f"{path}.") for problem in problems)
    assert all(problem["code"] and problem["message"] for problem in problems)


WRONG_IDS = [
    *("0", "-1", "01", "1.5", "abc", "1e3", "+1", "%201", "1%20", "%31%00", "1%0a", "99999999"),
    *("9223372036854775807", "9223372036854775808", "9" * 400),
    *("\u0661\u0662", "\u00b2", "1%2F2", "null", "None"),
]


BITES = {
    "empty": b"",
    "half": b'{"username": "a"',
    "not JSON": b"username=admin&password=x",
    "an array": b"[]",
    "a string": b'"x"',
    "null": b"null",
    "a number": b"1",
    "not UTF-8": b'{"username": "\xff"}',
    "UTF-16": '{"username": "x"}'.encode("utf-16"),
    "NaN": b'{"username": NaN}',
    "Infinity": b'{"username": -Infinity}',
    "a lone surrogate": b'{"username": "\\ud800", "password": "x"}',
    "20,000 brackets": b"[" * 20_000,
    "20,000 nested": b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
    "1e400": b'{"username": 1e400}',
    "5,000 digits": b'{"username": ' + b"9" * 5000 + b"}",
    "a control character": b'{"username": "\x01"}',
    "two documents": b"{} {}",
    "a NUL": b"\0",
}
