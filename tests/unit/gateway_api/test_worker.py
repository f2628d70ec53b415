"""What the worker keeps from one request to the next: nothing of a response may come from an earlier one."""

import logging
import os
from types import SimpleNamespace
from typing import Any

import pytest
from gunicorn.config import Config

from gateway_api.serving import worker


def response_to(method: str = "GET", version: tuple[int, int] = (1, 1), *, closes: bool = False) -> Any:
    request = SimpleNamespace(method=method, version=version, should_close=lambda: closes)
    return worker.Response(request, SimpleNamespace(), Config())


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
