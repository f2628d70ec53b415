"""What the worker keeps from one request to the next: nothing of a response may come from an earlier one."""

import logging
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gunicorn.config import Config
from gunicorn.http import errors, get_parser
from gunicorn.http.parser import RequestParser

from gateway_api.serving import worker


def response_to(method: str = "GET", version: tuple[int, int] = (1, 1), *, closes: bool = False) -> Any:
    request = SimpleNamespace(method=method, version=version, should_close=lambda: closes)
    return worker.wsgi.Response(request, SimpleNamespace(), Config())


def test_the_date_is_the_second_of_the_response(monkeypatch: pytest.MonkeyPatch) -> None:
    response = response_to()
    response.start_response("200 OK", [("Content-Length", "0")])
    dates = []
    for now in (0.0, 0.9, 1.0, 0.0):
        monkeypatch.setattr(worker.time, "time", lambda now=now: now)
        dates.append(response.default_headers()[1].partition("1970 ")[2])
    assert dates == [f"00:00:0{second} GMT\r\n" for second in (0, 0, 1, 0)]


@pytest.mark.parametrize("headers", [[], [("Content-Length", "0")], [("Connection", "upgrade")]])
@pytest.mark.parametrize("status", ["200 OK", "204 No Content"])
@pytest.mark.parametrize("closes", [True, False])
@pytest.mark.parametrize(("method", "version"), [("GET", (1, 0)), ("GET", (1, 1)), ("HEAD", (1, 1))])
def test_the_head_is_gunicorn_s_without_the_server(
    monkeypatch: pytest.MonkeyPatch,
    headers: list[tuple[str, str]],
    status: str,
    closes: bool,
    method: str,
    version: tuple[int, int],
) -> None:
    monkeypatch.setattr(worker.time, "time", lambda: 1_700_000_000.5)
    response = response_to(method, version, closes=closes)
    response.start_response(status, headers)
    theirs = super(type(response), response).default_headers()
    assert response.default_headers() == [line for line in theirs if not line.startswith("Server:")]


def test_a_worker_has_every_setting_of_gunicorn() -> None:
    cfg = Config()
    made = worker.GatewayWorker(1, os.getpid(), [], None, 30, cfg, logging.getLogger("tests"))
    made.tmp.close()
    # The second look finds what the first one kept.
    for _ in range(2):
        for name in cfg.settings:
            assert getattr(made.cfg, name) == getattr(cfg, name), name
        assert not hasattr(made.cfg, "no_such_setting")


def environ_of_a_request(cfg: Config) -> dict[str, Any]:
    request = SimpleNamespace(body=None, method="GET", query="", uri="/", version=(1, 1))
    made: dict[str, Any] = worker.wsgi.default_environ(request, None, cfg)
    return made


def test_what_an_application_changes_in_an_environ_ends_with_its_request() -> None:
    cfg = Config()
    first = environ_of_a_request(cfg)
    expected = dict(first)
    first["wsgi.url_scheme"] = "https"
    del first["wsgi.version"]
    assert environ_of_a_request(cfg) == expected


def test_an_environ_is_that_of_its_configuration() -> None:
    for workers in (1, 2):
        cfg = Config()
        cfg.set("workers", workers)
        assert environ_of_a_request(cfg)["wsgi.multiprocess"] is (workers > 1)


def test_errors_of_requests_go_to_the_new_file_when_the_log_is_reopened(tmp_path: Path) -> None:
    cfg, path = Config(), tmp_path / "errors"
    cfg.set("errorlog", str(path))
    log = object.__new__(worker.Log)
    log.cfg = cfg
    handler = logging.FileHandler(path)
    logging.getLogger("gunicorn.error").addHandler(handler)
    former = path.rename(path.with_suffix(".1"))
    environ_of_a_request(cfg)["wsgi.errors"].write("before")
    log.reopen_files()
    environ_of_a_request(cfg)["wsgi.errors"].write("after")
    assert (former.read_text(), path.read_text()) == ("before", "after")
    logging.getLogger("gunicorn.error").removeHandler(handler)
    handler.close()


@pytest.mark.parametrize("client", [("127.0.0.1", 1), ("::1", 1, 0, 0), ("192.0.2.1", 1), ("?", 1), "", b""])
@pytest.mark.parametrize("proxies", ["", "127.0.0.1", "192.0.2.0/24,::1", "*"])
def test_a_proxy_is_trusted_as_gunicorn_would(proxies: str, client: object) -> None:
    cfg = Config()
    cfg.set("forwarded_allow_ips", proxies)
    sent = b"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-Proto: https\r\n\r\n"
    ours = get_parser(cfg, [sent], client)
    theirs = RequestParser(cfg, [sent], client)
    assert type(ours) is not type(theirs)
    assert next(ours).scheme == next(theirs).scheme


@pytest.mark.parametrize("asked", [0, 2, 5, 9, None])
@pytest.mark.parametrize(
    "body",
    [
        b"Content-Length: 5\r\n\r\n12345",
        b"Content-Length: 0\r\n\r\n",
        b"\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n0\r\n\r\n",
    ],
)
def test_a_request_begins_where_the_body_before_it_ends(body: bytes, asked: int | None) -> None:
    both = b"PUT /first HTTP/1.1\r\nHost: a\r\n" + body + b"GET /second HTTP/1.1\r\nHost: a\r\n\r\n"
    for pieces in ([both], [both[i : i + 1] for i in range(len(both))]):
        parser = get_parser(Config(), pieces, ("127.0.0.1", 1))
        first = next(parser)
        first.body.read(asked)
        second = next(parser)
        assert (second.method, second.path) == ("GET", "/second")


def test_no_request_begins_behind_a_body_that_is_broken() -> None:
    head = b" / HTTP/1.1\r\nHost: a\r\n"
    sent = b"PUT" + head + b"Transfer-Encoding: chunked\r\n\r\nx\r\nGET" + head + b"\r\n"
    parser = get_parser(Config(), [sent], ("127.0.0.1", 1))
    with pytest.raises(errors.InvalidChunkSize):
        next(parser).body.read()
    with pytest.raises(StopIteration):
        next(parser)
