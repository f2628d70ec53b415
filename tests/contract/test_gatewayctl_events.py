"""`gatewayctl events` follows the events of a gateway, and resumes."""

import json
import os
import re
import signal
import time
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.support.by_api import disconnect, sessions
from tests.support.running_gateway import Gateway
from tests.support.shell import Running, Shell
from tests.support.sse import wait_for_workers, workers_of
from tests.support.stack import Api, core_of, wait_for

pytestmark = pytest.mark.slow

FAILED, DENIED = 1, 4


def first_event(running: Running, api: Api, times: int = 1) -> str:
    """Somebody is disconnected until it shows so many times."""

    pauses = (0.1 * 2**number for number in count(1))

    def seen() -> str | None:
        name, until = disconnect(api), time.monotonic() + next(pauses)
        # Longer each time: a busy machine shows an event later.
        while running.out.count(name) < times:
            if time.monotonic() > until:
                return None
            time.sleep(0.05)
        return name

    found: str = wait_for("an event", seen, 20)
    return found


def test_an_event_is_a_line(operator: Shell) -> None:
    with operator.started("events") as running:
        name = first_event(running, operator.api)
    line = next(line for line in running.out.splitlines() if name in line)
    assert re.fullmatch(
        rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d\+00:00  down  \d+  {re.escape(name)}  admin_disconnect"
        r"  [0-9a-f:]{17}  trunk[\w.]+  \d+ s",
        line,
    )


def test_a_change_of_rates_is_a_line_for_a_user_who_names_it(operator: Shell) -> None:
    (session,) = sessions(operator.api, limit="1")
    with operator.started("events", "--event", "session_rate") as running:
        change = {"rate_down": "7 mbit"}

        def changed() -> bool:
            operator.api.send("PUT", f"/subscribers/{session['id']}/rate", json=change)
            return session["username"] in running.out

        wait_for("the change", changed, 20)
    assert f"  rate  {session['id']}  {session['username']}  7 Mbit/s down  " in running.out.splitlines()[0]


def test_the_time_of_a_line_is_that_of_the_event(operator: Shell) -> None:
    with operator.started("events") as running:
        first_event(running, operator.api)
        assert running.end() == 143
    before = running.err.split()[-1]
    began = int(time.time())
    disconnect(operator.api)
    ended = time.time()
    # Another time than that of the line.
    time.sleep(3)
    with operator.started("events", "--after", before) as again:
        again.wait_for("down")
    (line,) = again.out.splitlines()
    shown = datetime.fromisoformat(line[:25])
    assert began <= shown.timestamp() <= ended


def test_nothing_is_missed_when_workers_are_killed(gateway: Gateway, operator: Shell) -> None:
    names = []
    with operator.started("events") as running:
        names.append(first_event(running, operator.api))
        for _ in range(2):
            workers = workers_of(gateway.process)
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
            wait_for_workers(gateway.process, 2, set(workers))
            running.wait_for("the stream has ended; resuming after")
            names.append(disconnect(operator.api))
            running.wait_for(names[-1])
    shown = [line.split()[4] for line in running.out.splitlines()]
    assert [name for name in shown if name in names] == names
    assert len(set(shown)) == len(shown)


def test_whoever_ends_it_is_told_how_to_go_on(operator: Shell) -> None:
    with operator.started("events") as running:
        first_event(running, operator.api)
        assert running.end() == 143
    id = running.err.split()[-1]
    missed = disconnect(operator.api)
    with operator.started("events", "--after", id) as again:
        again.wait_for(missed)
    assert len(again.out.splitlines()) == 1


def test_events_that_are_lost_are_told_as_a_gap(operator: Shell) -> None:
    with operator.started("events", "--after", "another-7") as running:
        running.wait_for("GAP   events are lost")


def test_a_restart_of_the_core_is_told_as_a_gap(gateway: Gateway, operator: Shell) -> None:
    with operator.started("events") as running:
        first_event(running, operator.api)
        os.kill(core_of(gateway.process), signal.SIGKILL)
        running.wait_for("GAP   events are lost")

    def healthy() -> bool:
        return operator.api.send("GET", "/health", None).status_code == 200

    wait_for("the core", healthy)


def test_only_events_of_a_type_are_followed(operator: Shell) -> None:
    with operator.started("events", "--type", "dhcp", "--after", "another-7") as running:
        running.wait_for("GAP")
        disconnect(operator.api)
        (chosen,) = sessions(operator.api, type="dhcp", limit="1")
        operator.api.send("DELETE", f"/subscribers/{chosen['id']}")
        running.wait_for(chosen["username"])
    assert len(running.out.splitlines()) == 2


def test_a_token_revoked_meanwhile_ends_the_following(leaver: Shell) -> None:
    with leaver.started("events") as running:
        first_event(running, leaver.api)
        assert leaver.api.send("POST", "/auth/logout", token=leaver.token).status_code == 200
        assert running.wait() == DENIED
    assert "log in with: gatewayctl login" in running.err


def test_a_type_that_is_none_ends_the_following_with_the_rule(operator: Shell) -> None:
    ended = operator.run("events", "--type", "isdn")
    assert (ended.status, ended.err) == (FAILED, "gatewayctl: --type: must be pppoe or dhcp\n")


def test_nothing_is_left_running_after_it(operator: Shell) -> None:
    with operator.started("events") as running:
        first_event(running, operator.api)
    mine = f"HOME={operator.folder}".encode()

    def gone() -> bool:
        return not any(mine in _read(entry / "environ") for entry in Path("/proc").glob("[0-9]*"))

    wait_for("the end of all processes", gone, 5)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        # It has ended.
        return b""


def test_events_of_all_gateways_have_their_context(operator: Shell) -> None:
    operator.has(operator.token, "second")
    with operator.started("--all", "-o", "json", "events") as running:
        # One gateway may have its stream before the other.
        name = first_event(running, operator.api, 2)
        running.end()
    found = [json.loads(line) for line in running.out.splitlines()]
    first = operator.api.url.removeprefix("https://")
    assert {event["context"] for event in found if event["username"] == name} == {first, "second"}
    assert {event["event"] for event in found} == {"session_down"}


NAMED = {"mac_address": "02:00:00:00:00:07", "ip_address": "100.64.0.7", "type": "PPPoE", "at": 1772331180}
UP = (
    {**NAMED, "id": 1, "username": "alice", "access_interface": "trunk0.7"},
    {**NAMED, "id": 2, "username": "bob", "access_interface": "trunk1.7"},
    {**NAMED, "id": 3, "username": "carol", "access_interface": "trunk10.7"},
)


@pytest.mark.parametrize(
    ("options", "names"),
    [(("--user", "bob"), ["bob"]), (("--trunk", "trunk1"), ["bob"]), ((), ["alice", "bob", "carol"])],
)
def test_events_are_of_a_user_or_a_trunk(
    gateway: Gateway, shell: Shell, options: tuple[str, ...], names: list[str]
) -> None:
    def reply(method: str, path: str) -> tuple[int, Any]:
        if "/events" not in path:
            return 200, {"status": "ok", "data": {}}
        blocks = (
            f"id: 1-{each['id']}\nevent: session_up\ndata: {json.dumps(each)}\n\n".encode() for each in UP
        )
        return 200, b"".join(blocks)

    with gateway.replaced(reply) as url:
        shell.environment["GATEWAY_URL"] = url
        with shell.started("events", "-o", "json", *options) as running:
            running.wait_for("the stream has ended")
    shown = [json.loads(line)["username"] for line in running.out.splitlines()]
    assert shown[: len(names)] == names


def test_failed_sign_ons_are_among_the_events(gateway: Gateway, shell: Shell) -> None:
    failure = {
        **NAMED,
        "username": "dave",
        "access_interface": "trunk0.9",
        "reason": "rejected",
        "first_at": 1,
    }
    asked: list[str] = []

    def reply(method: str, path: str) -> tuple[int, Any]:
        if "/failed-sign-ons" in path:
            asked.append(path)
            record = {**failure, "attempts": len(asked), "last_at": 1772331180 + len(asked)}
            return 200, {"status": "ok", "data": {"failures": [record], "next_cursor": None}}
        if "/events" in path:
            return 200, b":\n"
        return 200, {"status": "ok", "data": {}}

    with gateway.replaced(reply) as url:
        shell.environment["GATEWAY_URL"] = url
        with shell.started("events", "--failed-sign-ons", "--user", "dave") as running:
            running.wait_for("attempts: 3")
    lines = running.out.splitlines()
    # Those from before it began are not events.
    assert lines[0] == (
        "2026-03-01 02:13:02+00:00  fail  dave  rejected  02:00:00:00:00:07  trunk0.9  attempts: 2"
    )
    assert f"since={1772331181}" in asked[1]
    assert "username=dave" in asked[0]
