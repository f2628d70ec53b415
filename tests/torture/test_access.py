"""Requests of four workers while the core commits, and while it is killed in the middle of commits."""

import json
import os
import shutil
import signal
import threading
import time
from contextlib import ExitStack, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from random import Random
from typing import NamedTuple

from gateway_api.wire.varlink.client import Unreachable
from tests.support.audit import arbiter_of
from tests.support.stack import Api, call_core, issued, running_api, running_core
from tests.torture.test_logouts import WORKERS, Workers

COMMITS, KILLS = 150, 20
CHANCE = Random(1)
#: The core is asked for some of them; others need no core.
PATHS = ("/subscribers/1", "/subscribers/history?limit=1", "/subscribers/summary", "/webhooks")


class Response(NamedTuple):
    began: float
    ended: float
    status: int


class Setting(NamedTuple):
    """`api.enabled` since `replied`. The next change was sent at `until`."""

    replied: float
    until: float
    enabled: bool


def send(connection: HTTPConnection, token: str, stopped: threading.Event, found: list[Response]) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    while not stopped.is_set():
        for path in PATHS:
            began = time.monotonic()
            try:
                connection.request("GET", f"/api/v1{path}", headers=headers)
                response = connection.getresponse()
                response.read()
            except (HTTPException, OSError):
                connection.close()
                continue
            found.append(Response(began, time.monotonic(), response.status))


def enable(socket: Path, enabled: bool) -> None:
    edit = {"action": "set", "path": "api.enabled", "value_json": json.dumps(enabled)}
    call_core(socket, "AmendConfiguration", edits=[edit], author="root", action="test.enable")


def test_no_request_after_the_reply_to_a_commit_is_judged_by_the_settings_before_it(
    api: Api, state: Path, tmp_path: Path
) -> None:
    socket, settings, responses = tmp_path / "core.sock", list[Setting](), list[Response]()
    # With the users' generations: the token is for this core, too.
    shutil.copytree(state / "configuration", tmp_path / "configuration")
    token = issued(state, api.environment["OPERATOR_USER"], 3600)
    with ExitStack() as opened:
        start = (socket, state / "factory.json", "--sessions", "50")
        core = opened.enter_context(running_core(*start))
        url = opened.enter_context(running_api(socket, state, WORKERS, tls=False))
        workers, stopped = Workers(url, arbiter_of(state)), threading.Event()
        workers.reach()
        threads = [
            threading.Thread(target=send, args=(connection, token, stopped, responses))
            for connection in workers.connections.values()
        ]
        for thread in threads:
            thread.start()
        try:
            for number in range(COMMITS):
                enable(socket, bool(number % 2))
                replied = time.monotonic()
                time.sleep(CHANCE.uniform(0, 0.05))
                settings.append(Setting(replied, time.monotonic(), bool(number % 2)))
            for number in range(KILLS):
                killer = threading.Timer(CHANCE.uniform(0, 0.02), os.kill, [core.pid, signal.SIGKILL])
                killer.start()
                with suppress(Unreachable):
                    enable(socket, bool(number % 2))
                killer.join()
                core.wait()
                core = opened.enter_context(running_core(*start))
                enabled = call_core(socket, "GetApiSettings")["enabled"]
                replied = time.monotonic()
                time.sleep(CHANCE.uniform(0.05, 0.1))
                settings.append(Setting(replied, time.monotonic(), enabled))
        finally:
            stopped.set()
            for thread in threads:
                thread.join()
            for connection in workers.connections.values():
                connection.close()
    judged = [
        (response, setting)
        for setting in settings
        for response in responses
        if setting.replied < response.began and response.ended < setting.until
    ]
    assert len(judged) > 200
    # While the core starts, a request that needs it is 500.
    assert [each for each in judged if each[0].status not in (200 if each[1].enabled else 503, 500)] == []
