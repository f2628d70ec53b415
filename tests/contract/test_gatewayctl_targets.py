"""`gatewayctl` acts on the session that a target names, or on none: a number may be an id and a username."""

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.support.by_api import with_a_name
from tests.support.running_gateway import Gateway, Reply
from tests.support.shell import Ended, Shell
from tests.support.stack import wait_for

pytestmark = pytest.mark.slow

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


class Subscribers:
    """A gateway that has these sessions. `changes` are the methods and paths of the requests that change one,
    and `reads` those of the others."""

    def __init__(self, sessions: list[dict[str, Any]], past: list[dict[str, Any]]) -> None:
        self.sessions = sessions
        self.past = past
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
                return self._list(self.sessions, query)
            case ["", "history"]:
                return self.otherwise or self._list(self.past, query)
            case ["", "rate"]:
                return self._data({})
            case ["", id, "timeline"]:
                return self._data({"entries": [], "next_cursor": None})
            case ["", id, *_]:
                found = [each for each in self.sessions if str(each["id"]) == id]
                return self._data({**found[0], **self._done(id)}) if found else self._none()
        return self._none()

    def _list(self, records: list[dict[str, Any]], query: dict[str, str]) -> Reply:
        if "search" in query:
            texts = ("id", "username")
            records = [each for each in records if query["search"] in {str(each[name]) for name in texts}]
        names = ("id", "username", "ip_address", "mac_address")
        wanted = {name: query[name] for name in names if name in query}
        since = int(query.get("since", 0))
        found = [
            each
            for each in records
            if all(str(each[name]) == text for name, text in wanted.items())
            and (each.get("ended_at") or NOW) >= since
        ]
        return self._data({"sessions": found[: int(query["limit"])], "next_cursor": None})

    def _done(self, id: str) -> dict[str, Any]:
        return {"message": f"Session {id} done"}

    def _data(self, data: dict[str, Any]) -> Reply:
        return 200, {"status": "ok", "data": data}

    def _none(self) -> Reply:
        return 404, {"status": "error", "message": "No such session"}


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


@pytest.fixture
def stub() -> Subscribers:
    return Subscribers(SESSIONS, PAST)


@pytest.fixture
def shell(gateway: Gateway, shell: Shell, stub: Subscribers) -> Iterator[Shell]:
    with gateway.replaced(stub.reply) as url:
        shell.environment["GATEWAY_URL"] = url
        yield shell


COMMANDS = (
    ("disconnect", "--yes"),
    ("disconnect", "--dry-run"),
    ("rate", "--down", "1mbit"),
    ("show",),
    ("watch",),
)


def run(shell: Shell, command: tuple[str, ...], *targets: str) -> Ended:
    return shell.run("subscribers", *command, *targets)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("target", "spellings"),
    [
        ("120", ["id:120: session 120, carol", "user:120: session 11, 120"]),
        ("200", ["id:200: session 200, dave", "user:200: session 7, 200"]),
        ("100.64.0.5", ["ip:100.64.0.5: session 15, erin", "user:100.64.0.5: session 9, 100.64.0.5"]),
        ("020000000019", ["user:020000000019: session 20", "mac:02:00:00:00:00:19: session 19, frank"]),
        ("twice", ["id:17: session 17, twice", "id:18: session 18, twice"]),
        ("user:twice", ["id:17: session 17, twice", "id:18: session 18, twice"]),
    ],
)
def test_a_target_that_names_several_sessions_is_refused_with_all_of_them(
    shell: Shell, stub: Subscribers, command: tuple[str, ...], target: str, spellings: list[str]
) -> None:
    found = run(shell, command, target)
    assert (found.status, found.out, stub.changes) == (FAILED, "", [])
    first, *others = found.err.splitlines()
    assert first == f"gatewayctl: {target} names several sessions; nothing was done. Name one of them:"
    for line, spelling in zip(others, spellings, strict=True):
        assert line.startswith(f"gatewayctl: {spelling}")


def test_each_session_of_a_refusal_is_named_with_all_that_tells_it(shell: Shell) -> None:
    shell.environment["TZ"] = "UTC"
    here, gone = run(shell, ("disconnect", "--yes"), "200").err.splitlines()[1:]
    assert here.startswith(
        "gatewayctl: id:200: session 200, dave, 100.64.1.200, 02:00:00:00:01:c8, on trunk0.200, "
        "online since 20"
    )
    assert gone.startswith(
        "gatewayctl: user:200: session 7, 200, 100.64.1.7, 02:00:00:00:01:07, on trunk0.7, ended 20"
    )


@pytest.mark.parametrize(
    ("target", "id"),
    [
        *(("id:120", 120), ("user:120", 11), ("id:200", 200), ("300", 300), ("400", 400)),
        *((PHONE, 12), (DIGITS, 13), (f"user:{DIGITS}", 13)),
        *((ADDRESS, 14), (f"user:{ADDRESS}", 14), ("ip:100.64.0.5", 15)),
        *(("user:mac:x", 16), ("mac:0200-0000-0019", 19), ("0200.0000.0019", 19), ("carol", 120)),
    ],
)
def test_a_target_that_names_one_session_ends_it_alone(
    shell: Shell, stub: Subscribers, target: str, id: int
) -> None:
    found = run(shell, ("disconnect", "--yes"), target)
    assert (found.status, stub.changes) == (0, [f"DELETE /api/v1/subscribers/{id}"])


def test_one_of_several_targets_that_is_refused_keeps_all_sessions(shell: Shell, stub: Subscribers) -> None:
    assert run(shell, ("disconnect", "--yes"), "carol", "twice").status == FAILED
    assert stub.changes == []


@pytest.mark.parametrize(
    ("target", "requests"),
    [
        ("carol", 2),
        ("id:120", 1),
        ("user:120", 2),
        ("300", 2),
        ("400", 3),
        ("02:00:00:00:00:19", 4),
        (DIGITS, 3),
    ],
)
def test_a_target_takes_few_requests(shell: Shell, stub: Subscribers, target: str, requests: int) -> None:
    assert run(shell, ("show",), target).status == 0
    assert len(stub.reads) == requests


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        ((503, {"status": "error", "message": "The history is not available"}), AWAY),
        ((404, {"status": "error", "message": "No such path"}), FAILED),
        ((403, {"detail": "Admin role required"}), DENIED),
    ],
    ids=["damaged", "none", "forbidden"],
)
def test_without_a_history_a_number_is_refused_and_its_id_is_taken(
    shell: Shell, stub: Subscribers, reply: Reply, status: int
) -> None:
    stub.otherwise = reply
    found = run(shell, ("disconnect", "--yes"), "200")
    assert (found.status, stub.changes) == (status, [])
    first, *_, last = found.err.splitlines()
    assert first == (
        "gatewayctl: 200 may be a username, too, which the history cannot tell now; nothing was done"
    )
    assert last.startswith("gatewayctl: without the history, name the session: id:200: session 200, dave, ")
    assert run(shell, ("disconnect", "--yes"), "id:200").status == 0
    assert run(shell, ("disconnect", "--yes"), "carol").status == 0


@pytest.mark.parametrize("target", ["id:alice", "mac:x", "user:"])
def test_a_kind_with_what_it_cannot_have_is_wrong_usage(shell: Shell, stub: Subscribers, target: str) -> None:
    found = run(shell, ("disconnect", "--yes"), target)
    assert (found.status, stub.changes) == (USAGE, [])
    assert f"'{target}' must " in found.err


WHO = "carol, 100.64.1.120, 02:00:00:00:01:78"


def test_a_rate_names_the_subscriber_before_and_after_the_change(shell: Shell, stub: Subscribers) -> None:
    found = run(shell, ("rate", "--down", "1mbit"), "carol")
    assert found.err == f"gatewayctl: changing the rates of session 120, {WHO}\n"
    assert found.out.startswith(f"Session 120 done, {WHO}: ")
    assert WHO in run(shell, ("rate", "--dry-run", "--down", "1mbit"), "carol").out


def test_a_disconnect_names_the_subscriber_before_and_after(shell: Shell) -> None:
    found = run(shell, ("disconnect", "--yes"), "carol")
    assert all(text in found.err for text in WHO.split(", "))
    assert found.out == f"Session 120 done: {WHO}\n"
    shown = run(shell, ("disconnect", "--dry-run"), "carol").out
    assert all(text in shown for text in WHO.split(", "))
    terminal = shell.at_terminal("subscribers", "disconnect", "carol")
    terminal.expect("Disconnect them? [y/N] ")
    terminal.type("\n")
    terminal.end()
    assert all(text in terminal.shown for text in WHO.split(", "))


def test_what_a_program_reads_of_a_disconnect_is_as_before(shell: Shell) -> None:
    found = shell.json("subscribers", "disconnect", "--yes", "carol")
    assert found == {"count": 1, "messages": ["Session 120 done"]}


@pytest.mark.parametrize(
    ("target", "id"), [("user:200", 7), ("id:7", 7), ("id:300", 300), ("300", 300), ("erin", 15)]
)
def test_a_timeline_is_that_of_the_subscriber_who_may_be_offline(
    shell: Shell, stub: Subscribers, target: str, id: int
) -> None:
    assert run(shell, ("timeline",), target).status == 0
    assert stub.reads[-1].partition("?")[0] == f"GET /api/v1/subscribers/{id}/timeline"


@pytest.mark.parametrize("target", ["120", "200", "100.64.0.5"])
def test_a_timeline_of_several_subscribers_is_refused(shell: Shell, stub: Subscribers, target: str) -> None:
    found = run(shell, ("timeline",), target)
    assert (found.status, found.out) == (FAILED, "")
    assert f"user:{target}: session " in found.err
    assert not any("timeline" in each for each in stub.reads)


def test_a_number_that_finds_sessions_tells_of_a_subscriber_with_this_name(shell: Shell) -> None:
    found = run(shell, ("find",), "200")
    assert found.status == 0
    assert found.err.startswith("gatewayctl: 200 is also a username: session 7, 200, 100.64.1.7, ")
    for text in ("120", "400", "dave"):
        assert (run(shell, ("find",), text).status, run(shell, ("find",), text).err) == (0, "")


@pytest.mark.parametrize("command", [("disconnect", "--yes"), ("rate", "--down", "1mbit", "--yes")])
def test_a_number_does_not_choose_the_sessions_of_a_job(
    shell: Shell, stub: Subscribers, command: tuple[str, ...]
) -> None:
    found = run(shell, command, "--where", "search=120")
    assert (found.status, found.out, stub.changes) == (USAGE, "", [])
    assert "--where search: 120 may be a session id, a VLAN id or a part of a name\n" in found.err


@pytest.mark.parametrize("field", ["id", "user", "ip", "mac"])
def test_a_real_gateway_finds_a_session_by_each_kind(gateway: Gateway, operator: Shell, field: str) -> None:
    operator.environment["GATEWAY_URL"] = gateway.api.url
    (wanted,) = with_a_name(gateway.api, 1)
    names = {"id": "id", "user": "username", "ip": "ip_address", "mac": "mac_address"}
    target = f"{field}:{wanted[names[field]]}"
    assert operator.json("subscribers", "show", target)["id"] == wanted["id"]

    def timeline() -> bool:
        return operator.run("subscribers", "timeline", target).status == 0

    wait_for("the session in the history", timeline)
