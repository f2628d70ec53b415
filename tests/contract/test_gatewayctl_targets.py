"""`gatewayctl` acts on the session that a target names, or on none: a number may be an id and a username."""

import re
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.support.running_gateway import Gateway, Reply
from tests.support.shell import Shell

FAILED, USAGE, AWAY, DENIED = 1, 2, 3, 4
NOW = int(time.time())


def online(id: int, username: str, **more: Any) -> dict[str, Any]:
    return {
        "id": id,
        "username": username,
        "ip_address": f"100.64.1.{id % 256}",
        "ipv6_address": None,
        "mac_address": f"02:00:00:00:01:{id % 256:02x}",
        "access_interface": f"trunk0.{id}",
        "started_at": NOW - 3600,
        "session_type": "PPPoE",
        "ppp_interface": f"ppp{id}",
        "rate_down_bps": 10**6,
        "rate_up_bps": 10**6,
        **more,
    }


def ended(id: int, username: str, at: int = NOW - 7200) -> dict[str, Any]:
    return online(id, username, ended_at=at, ended_after=None, ended_before=None, started_at=at - 60)


PHONE, DIGITS, ADDRESS = "447700900123", "079512345678", "100.64.0.4"
SESSIONS = [
    online(120, "carol"),
    online(11, "120"),
    online(200, "dave"),
    online(300, "300"),
    online(12, PHONE),
    online(13, DIGITS),
    online(14, ADDRESS),
    online(15, "erin", ip_address="100.64.0.5"),
    online(16, "mac:x"),
    online(17, "twice"),
    online(18, "twice"),
    online(19, "frank", mac_address="02:00:00:00:00:19"),
    online(20, "020000000019"),
    online(400, "grace"),
]
PAST = [
    ended(7, "200"),
    ended(8, "400", NOW - 31 * 86_400),
    ended(9, "100.64.0.5"),
    ended(300, "300"),
    *(each | {"ended_at": None} for each in SESSIONS),
]


class Subscribers:
    """A gateway that has these sessions. `changes` are the methods and paths of the requests that change one,
    and `reads` those of the others."""

    def __init__(self) -> None:
        self.changes: list[str] = []
        self.reads: list[str] = []
        #: In place of the history.
        self.otherwise: Reply | None = None

    def reply(self, method: str, path: str) -> Reply:
        (self.reads if method == "GET" else self.changes).append(f"{method} {path}")
        parts = urlsplit(path)
        query = dict(parse_qsl(parts.query))
        match parts.path.removeprefix("/api/v1/subscribers").split("/"):
            case [""]:
                return self._list(SESSIONS, query)
            case ["", "history"]:
                return self.otherwise or self._list(PAST, query)
            case ["", "rate"]:
                return 200, {"status": "ok", "data": {}}
            case ["", _, "timeline"]:
                return 200, {"status": "ok", "data": {"entries": [], "next_cursor": None}}
            case ["", id, *_]:
                for each in SESSIONS:
                    if str(each["id"]) == id:
                        return 200, {"status": "ok", "data": {**each, "message": f"Session {id} done"}}
        return 404, {"status": "error", "message": "No such session"}

    def _list(self, records: list[dict[str, Any]], query: dict[str, str]) -> Reply:
        if text := query.get("search"):
            records = [each for each in records if text in {str(each["id"]), each["username"]}]
        names = ("id", "username", "ip_address", "mac_address")
        wanted = {name: query[name] for name in names if name in query}
        found = [
            each
            for each in records
            if all(str(each[name]) == text for name, text in wanted.items())
            and (each.get("ended_at") or NOW) >= int(query.get("since", 0))
        ]
        return 200, {
            "status": "ok",
            "data": {"sessions": found[: int(query["limit"])], "next_cursor": None},
        }


@pytest.fixture
def stub() -> Subscribers:
    return Subscribers()


@pytest.fixture
def shell(gateway: Gateway, shell: Shell, stub: Subscribers) -> Iterator[Shell]:
    with gateway.replaced(stub.reply) as url:
        shell.environment["GATEWAY_URL"] = url
        yield shell


DISCONNECT = ("subscribers", "disconnect", "--yes")
CAROL = "carol, 100.64.1.120, 02:00:00:00:01:78"


@pytest.mark.parametrize(
    ("target", "spellings"),
    [
        ("120", ["id:120: session 120, carol", "user:120: session 11, 120"]),
        ("200", ["id:200: session 200, dave", "user:200: session 7, 200"]),
        ("100.64.0.5", ["ip:100.64.0.5: session 15, erin", "user:100.64.0.5: session 9, 100.64.0.5"]),
        ("020000000019", ["user:020000000019: session 20", "mac:02:00:00:00:00:19: session 19, frank"]),
        ("user:twice", ["id:17: session 17, twice", "id:18: session 18, twice"]),
    ],
)
def test_a_target_that_names_several_sessions_is_refused_with_all_of_them(
    shell: Shell, stub: Subscribers, target: str, spellings: list[str]
) -> None:
    found = shell.run(*DISCONNECT, "carol", target)
    assert (found.status, found.out, stub.changes) == (FAILED, "", [])
    first, *others = found.err.splitlines()
    assert first == f"gatewayctl: {target} names several sessions; nothing was done. Name one of them:"
    for line, spelling in zip(others, spellings, strict=True):
        assert line.startswith(f"gatewayctl: {spelling}")


def test_each_command_refuses_and_tells_all_of_each_session(shell: Shell, stub: Subscribers) -> None:
    for command in ("rate --down 1mbit", "show", "watch", "disconnect --dry-run", "timeline"):
        found = shell.run("subscribers", *command.split(), "200")
        assert (found.status, found.out, stub.changes) == (FAILED, "", [])
        assert re.search(
            r"(?m)^gatewayctl: id:200: session 200, dave, 100\.64\.1\.200, 02:00:00:00:01:c8, on "
            r"trunk0\.200, online since .*\ngatewayctl: user:200: session 7, 200, .*, on trunk0\.7, ended 20",
            found.err,
        )
    found = shell.run(*DISCONNECT, "id:alice")
    assert (found.status, stub.changes) == (USAGE, [])
    assert "'id:alice' must " in found.err


@pytest.mark.parametrize(
    ("target", "id", "requests"),
    [
        *(("id:120", 120, 1), ("user:120", 11, 2), ("id:200", 200, 1), ("300", 300, 2), ("400", 400, 3)),
        *((PHONE, 12, 4), (DIGITS, 13, 3), (f"user:{DIGITS}", 13, 2), ("user:mac:x", 16, 2)),
        *((ADDRESS, 14, 3), (f"user:{ADDRESS}", 14, 2), ("ip:100.64.0.5", 15, 2)),
        *(("mac:0200-0000-0019", 19, 2), ("0200.0000.0019", 19, 4), ("carol", 120, 2)),
    ],
)
def test_a_target_that_names_one_session_ends_it_alone_with_few_requests(
    shell: Shell, stub: Subscribers, target: str, id: int, requests: int
) -> None:
    assert shell.run(*DISCONNECT, target).status == 0
    assert stub.changes == [f"DELETE /api/v1/subscribers/{id}"]
    assert len(stub.reads) == requests


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        ((503, {"status": "error", "message": "The history is not available"}), AWAY),
        ((403, {"detail": "Admin role required"}), DENIED),
    ],
    ids=["damaged", "forbidden"],
)
def test_without_a_history_a_number_is_refused_and_its_id_is_taken(
    shell: Shell, stub: Subscribers, reply: Reply, status: int
) -> None:
    stub.otherwise = reply
    found = shell.run(*DISCONNECT, "200")
    assert (found.status, stub.changes) == (status, [])
    first, *_, last = found.err.splitlines()
    assert first == (
        "gatewayctl: 200 may be a username, too, which the history cannot tell now; nothing was done"
    )
    assert last.startswith("gatewayctl: without the history, name the session: id:200: session 200, dave, ")
    assert shell.run(*DISCONNECT, "id:200", "carol").status == 0


def test_a_change_names_the_subscriber_before_and_after(shell: Shell) -> None:
    found = shell.run("subscribers", "rate", "--down", "1mbit", "carol")
    assert found.err == f"gatewayctl: changing the rates of session 120, {CAROL}\n"
    assert found.out.startswith(f"Session 120 done, {CAROL}: ")
    found = shell.run(*DISCONNECT, "carol")
    assert all(text in found.err for text in CAROL.split(", "))
    assert found.out == f"Session 120 done: {CAROL}\n"
    shown = shell.done("subscribers", "disconnect", "--dry-run", "carol")
    assert all(text in shown for text in CAROL.split(", "))
    assert shell.json(*DISCONNECT, "carol") == {"count": 1, "messages": ["Session 120 done"]}


@pytest.mark.parametrize(("target", "id"), [("user:200", 7), ("id:300", 300), ("erin", 15)])
def test_a_timeline_is_that_of_the_subscriber_also_offline(
    shell: Shell, stub: Subscribers, target: str, id: int
) -> None:
    shell.done("subscribers", "timeline", target)
    assert stub.reads[-1].partition("?")[0] == f"GET /api/v1/subscribers/{id}/timeline"


def test_a_number_that_finds_sessions_tells_of_a_subscriber_with_this_name(shell: Shell) -> None:
    found = shell.run("subscribers", "find", "200")
    assert found.status == 0
    assert found.err.startswith("gatewayctl: 200 is also a username: session 7, 200, 100.64.1.7, ")
    for text in ("120", "400", "dave"):
        found = shell.run("subscribers", "find", text)
        assert (found.status, found.err) == (0, "")
