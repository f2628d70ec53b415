"""`gatewayctl events` follows the events of a gateway, and resumes."""

import json
import re
from typing import Any

import pytest

from tests.support.by_api import disconnect, sessions
from tests.support.running_gateway import Gateway, Reply
from tests.support.shell import Ended, Running, Shell
from tests.support.stack import Api, wait_for

FAILED, DENIED = 1, 4
ALICE = {"username": "alice", "mac_address": "02:00:00:00:00:07", "access_interface": "trunk0.7"}
AT = {"at": 1772331180}


def first_event(running: Running, api: Api) -> str:
    """Disconnects sessions until one shows."""
    names: list[str] = []

    def seen() -> str | None:
        names.append(disconnect(api))
        return next((name for name in names if name in running.out), None)

    found: str = wait_for("an event", seen)
    return found


def test_an_event_is_a_line_and_the_end_tells_how_to_continue(operator: Shell) -> None:
    with operator.started("events") as running:
        name = first_event(running, operator.api)
        assert running.end() == 143
    (line,) = (line for line in running.out.splitlines() if name in line)
    assert re.fullmatch(
        rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d\+00:00  down  \d+  {re.escape(name)}  admin_disconnect"
        r"  [0-9a-f:]{17}  trunk[\w.]+  \d+ s",
        line,
    )
    option, id = running.err.split()[-2:]
    disconnect(operator.api)
    (chosen,) = sessions(operator.api, type="dhcp", limit="1")
    operator.api.send("DELETE", f"/subscribers/{chosen['id']}")
    with operator.started("events", "--type", "dhcp", option, id) as again:
        again.wait_for("down")
    (line,) = again.out.splitlines()
    assert f"  down  {chosen['id']}  " in line


def test_events_that_are_lost_are_told_as_a_gap(operator: Shell) -> None:
    with operator.started("events", "--after", "another-7") as running:
        running.wait_for("GAP   events are lost")


class Events:
    """A gateway that sends each of these streams once, and then refuses the token."""

    def __init__(self, *streams: list[tuple[str, dict[str, Any]]]) -> None:
        self._streams = [
            "".join(
                f"id: a-{number}\nevent: {name}\ndata: {json.dumps(data)}\n\n"
                for number, (name, data) in enumerate(stream, 1)
            ).encode()
            for stream in streams
        ]
        self.seen: list[tuple[Any, ...]] = []

    def reply(self, method: str, path: str) -> Reply:
        if "/events" not in path:
            return 200, {"status": "ok", "data": {}}
        if not self._streams:
            return 401, {"detail": "Could not validate credentials"}
        return 200, self._streams.pop(0)

    def follow(self, gateway: Gateway, shell: Shell, *options: str) -> Ended:
        with gateway.replaced(self.reply, self.seen) as url:
            shell.environment["GATEWAY_URL"] = url
            ended = shell.run("events", *options)
        assert ended.status == DENIED
        assert "log in with: gatewayctl login" in ended.err
        return ended


def test_each_event_has_its_time_and_what_it_is_of(gateway: Gateway, shell: Shell) -> None:
    up = {**ALICE, **AT, "id": 1, "type": "PPPoE", "ip_address": None, "ipv6_address": "2001:db8::7"}
    down = {**ALICE, **AT, "id": 1, "reason": None, "username": "", "mac_address": None}
    rate = {**ALICE, **AT, "id": 1, "rate_down": 7 * 10**6, "rate_up": 10**6, "expires_at": 1772331240}
    events = Events([("session_up", up), ("session_down", down), ("session_rate", rate)])
    shown = events.follow(gateway, shell, "--event", "session_up,session_down,session_rate").out
    assert shown.splitlines() == [
        f"2026-03-01 02:13:00+00:00  {line}"
        for line in (
            "up    1  alice  PPPoE  2001:db8::7  02:00:00:00:00:07  trunk0.7",
            "down  1  -  -  -  trunk0.7  -",
            "rate  1  alice  7 Mbit/s down  1 Mbit/s up  until 2026-03-01 02:14:00+00:00",
        )
    ]
    assert "events=session_up%2Csession_down%2Csession_rate" in events.seen[1][1]


def test_a_lost_stream_is_resumed_after_the_last_event(gateway: Gateway, shell: Shell) -> None:
    down = ("session_down", {**ALICE, **AT, "id": 1, "reason": "idle_timeout"})
    events = Events([down, down], [down])
    ended = events.follow(gateway, shell)
    assert len(ended.out.splitlines()) == 3
    assert "gatewayctl: the stream has ended; resuming after a-2\n" in ended.err
    assert [seen[-1] for seen in events.seen] == [None, None, "a-2", "a-1"]
    assert "gatewayctl: to continue: --after a-1\n" in ended.err
    # Of all gateways, each has its context.
    with gateway.replaced(Events([down], [down]).reply) as url:
        del shell.environment["GATEWAY_URL"]
        for name in ("first", "second"):
            shell.has("", name, url=url)
        lines = shell.run("--all", "-o", "json", "events").out.splitlines()
    assert {json.loads(line)["context"] for line in lines} == {"first", "second"}


@pytest.mark.parametrize(
    ("options", "names"),
    [(("--user", "alice"), ["alice"]), (("--trunk", "trunk1"), ["bob"]), ((), ["alice", "bob", "carol"])],
)
def test_events_are_of_a_user_or_a_trunk(
    gateway: Gateway, shell: Shell, options: tuple[str, ...], names: list[str]
) -> None:
    of = {"alice": "trunk0.7", "bob": "trunk1.7", "carol": "trunk10.7"}
    events = Events(
        [
            ("session_down", {**AT, "id": 1, "reason": "x", "username": name, "access_interface": vlan})
            for name, vlan in of.items()
        ]
    )
    lines = events.follow(gateway, shell, "-o", "json", *options).out.splitlines()
    assert [json.loads(line)["username"] for line in lines] == names


def test_failed_sign_ons_are_among_the_events(
    gateway: Gateway, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway_client.gateway._POLL_SECONDS", 0.01)
    asked: list[str] = []

    def reply(method: str, path: str) -> Reply:
        if "/failed-sign-ons" not in path:
            return (403, {"detail": "no"}) if "/events" in path else (200, {"status": "ok", "data": {}})
        asked.append(path)
        if len(asked) > 3:
            return 403, {"detail": "no"}
        # The third time there is no other attempt.
        attempts = min(len(asked), 2)
        record = {**ALICE, "reason": "rejected", "first_at": 1, "attempts": attempts}
        record["last_at"] = 1772331180 + attempts
        return 200, {"status": "ok", "data": {"failures": [record], "next_cursor": None}}

    with gateway.replaced(reply) as url:
        shell.environment["GATEWAY_URL"] = url
        ended = shell.run("events", "--failed-sign-ons", "--user", "alice")
    # Those from before it began are not events.
    assert ended.out == (
        "2026-03-01 02:13:02+00:00  fail  alice  rejected  02:00:00:00:00:07  trunk0.7  attempts: 2\n"
    )
    assert "username=alice" in asked[0]
    assert "since=1772331181" in asked[1]
