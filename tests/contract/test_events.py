"""The event stream over TLS, as a client sees it."""

import json
import re
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.documents import SECRET_HASH
from tests.support.sse import PATH, Message, Stream, assert_gapless, listen, messages_in, resume
from tests.support.stack import PATIENCE, Api, issued, running_stack

CREDENTIALS = {"detail": "Could not validate credentials"}
#: Seconds that are enough even on a busy machine, and less than those until a heartbeat.
SOON = 10
COMMON = ("at", "mac_address", "access_interface")
FIELDS = {
    "session_up": ("id", "type", "username", "ip_address", *COMMON),
    "session_down": ("id", "username", "reason", *COMMON, "bytes_in", "bytes_out", "duration_seconds"),
}


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Forty subscribers come and go a second."""
    with running_stack(tmp_path_factory.mktemp("busy"), sessions=200, arrivals=40) as (api, _):
        yield api


def disconnect_one(api: Api) -> dict[str, Any]:
    """Ends the last session; its record."""
    session: dict[str, Any] = api.get("/subscribers", params={"limit": 1, "sort": "-id"})["sessions"][0]
    assert api.send("DELETE", f"/subscribers/{session['id']}").status_code == 200
    return session


def ends_properly(stream: Stream) -> float:
    """The seconds until the end of the body."""
    began = time.monotonic()
    while stream.read():
        pass
    return time.monotonic() - began


def refused(api: Api, query: str = "", token: str | None = None) -> tuple[int, Any]:
    with Stream(api.url, api.environment["GATEWAY_CA"], token, query) as answer:
        return answer.status, json.loads(answer.read_all())


# What goes over the wire


def test_the_headers_come_at_once_and_say_that_it_is_a_stream_that_nobody_may_keep(api: Api) -> None:
    head = api.send("HEAD", "/events/subscribers")
    assert (head.status_code, head.content) == (200, b"")
    with listen(api) as stream:
        for headers in (head.headers, stream.headers):
            assert headers["Content-Type"].startswith("text/event-stream")
            assert (headers["Cache-Control"], headers["X-Accel-Buffering"]) == ("no-store", "no")
            assert headers["X-Request-ID"]
        assert stream.headers["Transfer-Encoding"] == "chunked"


def test_a_client_of_http_1_0_gets_the_events_without_chunks(api: Api) -> None:
    url = urlsplit(api.url)
    context = ssl.create_default_context(cafile=api.environment["GATEWAY_CA"])
    request = f"GET {PATH} HTTP/1.0\r\nAuthorization: Bearer {api.token('operator')}\r\n\r\n"
    with (
        socket.create_connection((str(url.hostname), url.port or 0), PATIENCE) as connection,
        context.wrap_socket(connection, server_hostname=url.hostname) as client,
    ):
        client.sendall(request.encode())
        received = b""
        while b"\r\n\r\n" not in received:
            received += client.recv(4096)
        session = disconnect_one(api)
        while not received.endswith(b"}\n\n"):
            received += client.recv(4096)
    header, _, body = received.partition(b"\r\n\r\n")
    assert header.startswith(b"HTTP/1.0 200 ")
    assert b"Transfer-Encoding" not in header
    assert [message.data["id"] for message in messages_in(bytearray(body))] == [session["id"]]


def test_the_end_of_a_session_is_told_to_the_letter(api: Api) -> None:
    with listen(api) as stream:
        session = disconnect_one(api)
        data = f'{{"id":{session["id"]},"username":"{session["username"]}","reason":"admin_disconnect",'
        data += f'"at":([0-9]+),"mac_address":"{session["mac_address"]}",'
        data += f'"access_interface":"{session["access_interface"]}",'
        data += '"bytes_in":([0-9]+),"bytes_out":([0-9]+),"duration_seconds":([0-9]+)}'
        expected = f"id: [0-9a-z]+-[1-9][0-9]*\nevent: session_down\ndata: {data}\n\n"
        found = re.fullmatch(expected, stream.read().decode())
    assert found
    at, *traffic, duration = map(int, found.groups())
    assert min(traffic) > 0
    assert duration == at - session["started_at"] > 0


def test_events_tell_what_the_list_shows(busy: Api) -> None:
    with listen(busy) as stream:
        before = stream.take(60)
        shown = {session["id"]: session for session in busy.get("/subscribers")["sessions"]}
        gone = {message.data["id"] for message in before if message.name == "session_down"}
        came = [message.data for message in before if message.name == "session_up"]
        missing = {data["id"] for data in came} - set(shown) - gone
        # Each ended before the list, and the event of its end is among those that follow.
        while missing:
            (message,) = stream.take(1)
            missing -= {message.data["id"]} if message.name == "session_down" else set()
    assert_gapless(before)
    assert all(tuple(message.data) == FIELDS[message.name] for message in before)
    assert not gone & set(shown)
    stayed = [data for data in came if data["id"] in shown]
    assert stayed
    for data in stayed:
        assert data.pop("at") == shown[data["id"]]["started_at"]
        assert data.items() <= shown[data["id"]].items()


# Filters


def test_a_change_of_rates_comes_to_a_client_that_names_it(api: Api) -> None:
    session = api.get("/subscribers", params={"limit": 1})["sessions"][0]
    path = f"/subscribers/{session['id']}/rate"
    with listen(api, "?events=session_rate") as named, listen(api) as usual:
        assert api.send("PUT", path, json={"rate_down": "7 mbit", "expires_in": 60}).status_code == 200
        gone = disconnect_one(api)
        (rate,) = named.take(1)
        (down,) = usual.take(1)
    assert rate.name == "session_rate"
    assert rate.data["expires_at"] == pytest.approx(rate.data["at"] + 60, abs=2)
    assert (rate.data["id"], rate.data["username"]) == (session["id"], session["username"])
    assert (rate.data["rate_down"], rate.data["rate_up"]) == (7_000_000, session["rate_up"])
    assert (down.name, down.data["id"]) == ("session_down", gone["id"])


def test_filters_hold_together_and_for_what_is_resumed(busy: Api) -> None:
    with listen(busy) as stream:
        (first,) = stream.take(1)
        everything = stream.take(100)
    last = everything[-1].sequence
    with resume(busy, first.id, query="?events=session_up&type=pppoe") as stream:
        found = stream.until(lambda message: message.sequence >= last)
    assert [message for message in found if message.sequence <= last] == [
        message for message in everything if message.name == "session_up" and message.data["type"] == "PPPoE"
    ]


def test_a_parameter_that_cannot_be_is_400_and_named(api: Api) -> None:
    for query, parameter in (
        ("?events=session_sideways", "events"),
        ("?events=", "events"),
        ("?events=session_up,", "events"),
        ("?events=gap", "events"),
        ("?events=session_up&events=session_down", "events"),
        ("?type=ppp", "type"),
        ("?last_event_id=garbage", "last_event_id"),
        ("?last_event_id=abc-99999999999999999999", "last_event_id"),
        ("?event=session_up", "event"),
        ("?Last-Event-ID=abc-1", "Last-Event-ID"),
    ):
        status, body = refused(api, query, api.token("operator"))
        assert (status, body["status"]) == (400, "error")
        assert [problem["path"] for problem in body["errors"]] == [parameter]
        # Nobody without a token learns of it.
        assert refused(api, query, "a.b.c") == (401, CREDENTIALS)


# Coming back


@pytest.mark.parametrize("by", ["header", "query"])
def test_a_client_that_comes_back_gets_exactly_what_came_after(busy: Api, by: str) -> None:
    with listen(busy) as stream:
        messages = stream.take(40)
        id = messages[9].id
        with resume(busy, id) if by == "header" else listen(busy, f"?last_event_id={id}") as resumed:
            assert resumed.take(30) == messages[10:]
            rest = resumed.take(20)
        assert rest == stream.take(20)


def first_of(stream: Stream) -> Message:
    with stream:
        return stream.take(1)[0]


def test_an_id_that_is_not_held_is_one_gap_that_tells_what_is(busy: Api) -> None:
    now = first_of(listen(busy))
    future = f"{now.boot_id}-{now.sequence + 10_000_000}"
    for id in ("garbage", "x" * 5000, "abc-" + "9" * 30, "0123456789abcdef-7", future):
        with resume(busy, id) as stream:
            gap, *messages = stream.take(10)
        assert (gap.name, gap.boot_id) == ("gap", now.boot_id)
        assert gap.data == {"oldest": f"{gap.boot_id}-1", "newest": gap.id}
        assert_gapless(messages)
        assert messages[0].sequence == gap.sequence + 1
    with resume(busy, gap.id) as stream:
        assert stream.take(9) == messages


def test_the_header_is_newer_than_the_query_of_the_url(api: Api) -> None:
    def first(query: str, **header: str) -> Message:
        return first_of(listen(api, f"?events=session_up&last_event_id={query}", headers=header))

    gap = first("other-1", **{"Last-Event-ID": ""})
    assert (gap.name, first(gap.id, **{"Last-Event-ID": "garbage"}).name) == ("gap", "gap")
    # No id in the query, or one in the header that is held, leaves nothing to tell of before the next event.
    with ExitStack() as opened:
        streams = [
            opened.enter_context(listen(api, "?last_event_id=other-1", headers={"Last-Event-ID": gap.id})),
            opened.enter_context(listen(api, "?last_event_id=")),
            opened.enter_context(resume(api, "")),
        ]
        session = disconnect_one(api)
        for stream in streams:
            (message,) = stream.take(1)
            assert (message.name, message.data["id"]) == ("session_down", session["id"])


# The right to listen


def test_a_stream_ends_with_its_token_and_others_go_on(busy: Api, api: Api, state: Path) -> None:
    expires, given_back = issued(state, "operator", 3), api.new_token("operator")
    with (
        listen(api, token=expires) as silent,
        listen(api, token=given_back) as another,
        listen(api) as other,
    ):
        assert api.send("POST", "/auth/logout", token=given_back).status_code == 200
        assert ends_properly(another) < SOON
        assert ends_properly(silent) < 3 + SOON
        assert refused(api, "", expires) == (401, CREDENTIALS)
        disconnect_one(api)
        other.take(1)
    token = busy.new_token("operator")
    with listen(busy, token=token) as stream, listen(busy) as other:
        stream.take(1)
        assert busy.send("POST", "/auth/logout-everywhere", token=token).status_code == 200
        assert ends_properly(stream) < SOON
        assert ends_properly(other) < SOON
    busy.forget_tokens()


def commit(api: Api, *operations: dict[str, Any]) -> None:
    for path, body in (("edit", {"operations": list(operations)}), ("commit", None)):
        answer = api.send("POST", f"/system/config/{path}", json=body)
        assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    "change",
    [
        {"op": "set", "path": "api.users.guest.role", "value": "operator"},
        {"op": "delete", "path": "api.users.guest"},
    ],
    ids=["demoted", "removed"],
)
def test_a_stream_ends_when_its_user_is_removed_or_demoted(
    api: Api, state: Path, change: dict[str, Any]
) -> None:
    user = {"password_hash": SECRET_HASH, "role": "admin"}
    commit(
        api,
        *({"op": "set", "path": f"api.users.guest.{name}", "value": user[name]} for name in user),
    )
    token = issued(state, "guest", 600)
    with listen(api) as other, listen(api, token=token) as stream:
        commit(api, change)
        assert ends_properly(stream) < SOON
        assert refused(api, "", token) == (401, CREDENTIALS)
        disconnect_one(api)
        other.take(1)
