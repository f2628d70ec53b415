"""The event stream over TLS, against running stacks whose processes come and go."""

import json
import logging
import os
import random
import re
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.documents import SECRET_HASH
from tests.support.sse import (
    PATH,
    Message,
    Stream,
    assert_gapless,
    collector,
    is_cut,
    listen,
    master_of,
    resident_megabytes,
    resume,
    wait_for_workers,
    worker_of,
    workers_of,
)
from tests.support.stack import PATIENCE, Api, core_of, issued, running_api, running_stack, wait_for

_log = logging.getLogger(__name__)

#: RFC 2866 section 5.10, in snake_case, and what the contract adds.
REASONS = {
    *("user_request", "lost_carrier", "lost_service", "idle_timeout", "session_timeout", "admin_reset"),
    *("admin_reboot", "port_error", "nas_error", "nas_request", "nas_reboot", "port_unneeded"),
    *("port_preempted", "port_suspended", "service_unavailable", "callback", "user_error", "host_request"),
    "admin_disconnect",
}
CREDENTIALS = {"detail": "Could not validate credentials"}
KILLS = 200


@dataclass
class Running:
    """A stack, its process and its folder."""

    api: Api
    process: "subprocess.Popen[bytes]"
    state: Path


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Forty subscribers come and go a second."""
    state = tmp_path_factory.mktemp("busy")
    with running_stack(state, sessions=200, arrivals=40) as (api, process):
        yield Running(api, process, state)


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Nothing happens but what a test does."""
    state = tmp_path_factory.mktemp("quiet")
    with running_stack(state, sessions=300) as (api, process):
        yield Running(api, process, state)


@pytest.fixture
def own(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Running]:
    """A stack for one test, with so many arrivals a second."""
    arrivals = getattr(request, "param", 20)
    with running_stack(tmp_path, sessions=200, arrivals=arrivals) as (api, process):
        yield Running(api, process, tmp_path)


def disconnect_one(api: Api) -> dict[str, Any]:
    """Ends the first session; its record."""
    session: dict[str, Any] = api.get("/subscribers", params={"limit": 1})["sessions"][0]
    assert api.send("DELETE", f"/subscribers/{session['id']}").status_code == 200
    return session


#: Seconds that are enough even on a busy machine, and less than those until a heartbeat.
SOON = 10


def ends_properly(stream: Stream) -> float:
    """The seconds until the end of the body."""
    began = time.monotonic()
    while stream.read():
        pass
    return time.monotonic() - began


def refused(running: Running, query: str = "", token: str | None = None, **more: Any) -> tuple[int, Any]:
    api = running.api
    with Stream(api.url, api.environment["GATEWAY_CA"], token, query, **more) as answer:
        return answer.status, json.loads(answer.read_all())


def kill_workers(running: Running) -> None:
    """All at once; returns when there are others."""
    workers = workers_of(running.process)
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    wait_for_workers(running.process, len(workers), set(workers))


# What goes over the wire


def test_the_headers_say_that_it_is_a_stream_that_nobody_may_keep(quiet: Running) -> None:
    with listen(quiet.api) as stream:
        assert stream.headers.get_content_type() == "text/event-stream"
        assert stream.headers.get_content_charset() in (None, "utf-8")
        assert stream.headers["Cache-Control"] == "no-store"
        assert stream.headers["X-Accel-Buffering"] == "no"
        assert stream.headers["Transfer-Encoding"] == "chunked"
        assert stream.headers["X-Request-ID"]


def test_a_client_of_http_1_0_gets_the_events_without_chunks(quiet: Running) -> None:
    url = urlsplit(quiet.api.url)
    context = ssl.create_default_context(cafile=quiet.api.environment["GATEWAY_CA"])
    request = f"GET {PATH} HTTP/1.0\r\nAuthorization: Bearer {quiet.api.token('operator')}\r\n\r\n"
    with (
        socket.create_connection((str(url.hostname), url.port or 0), PATIENCE) as connection,
        context.wrap_socket(connection, server_hostname=url.hostname) as client,
    ):
        client.sendall(request.encode())
        received = b""
        while b"\r\n\r\n" not in received:
            received += client.recv(4096)
        session = disconnect_one(quiet.api)
        while not received.endswith(b"}\n\n"):
            received += client.recv(4096)
    header, _, body = received.partition(b"\r\n\r\n")
    assert header.startswith(b"HTTP/1.0 200 ")
    assert b"Transfer-Encoding" not in header
    assert body.startswith(b"id: ")
    assert b'"id":%d,' % session["id"] in body


def test_the_headers_come_at_once_though_nothing_happens(quiet: Running) -> None:
    with listen(quiet.api):
        pass
    began = time.monotonic()
    with listen(quiet.api):
        # Before any heartbeat.
        assert time.monotonic() - began < 10


def test_an_event_is_an_id_a_name_and_data_to_the_letter(quiet: Running) -> None:
    with listen(quiet.api) as stream:
        session = disconnect_one(quiet.api)
        data = f'{{"id":{session["id"]},"username":"{session["username"]}","reason":"admin_disconnect",'
        data += f'"at":[0-9]+,"mac_address":"{session["mac_address"]}",'
        data += f'"access_interface":"{session["access_interface"]}",'
        data += '"bytes_in":[0-9]+,"bytes_out":[0-9]+,"duration_seconds":[0-9]+}'
        expected = f"id: [0-9a-z]+-[1-9][0-9]*\nevent: session_down\ndata: {data}\n\n"
        assert re.fullmatch(expected, stream.read().decode())


def test_an_event_comes_within_half_a_second(quiet: Running) -> None:
    waits = []
    with listen(quiet.api) as stream:
        for _ in range(5):
            disconnect_one(quiet.api)
            began = time.monotonic()
            stream.take(1)
            waits.append(time.monotonic() - began)
    # The best of them: what else the machine does only adds.
    assert min(waits) < 0.5


def test_events_have_the_fields_of_the_contract(busy: Running) -> None:
    with listen(busy.api) as stream:
        messages = stream.take(200)
    assert_gapless(messages)
    ups = [message.data for message in messages if message.name == "session_up"]
    downs = [message.data for message in messages if message.name == "session_down"]
    assert {tuple(data)[:4] for data in ups} == {("id", "type", "username", "ip_address")}
    assert {tuple(data)[:3] for data in downs} == {("id", "username", "reason")}
    assert {type(data["id"]) for data in ups + downs} == {int}
    assert {data["type"] for data in ups} == {"PPPoE", "DHCP"}
    assert {data["reason"] for data in downs} <= REASONS


def test_events_carry_their_time_and_who_and_where(busy: Running) -> None:
    with listen(busy.api) as stream:
        messages = stream.take(200)
    common = ("at", "mac_address", "access_interface")
    for data in (message.data for message in messages if message.name == "session_up"):
        assert tuple(data)[4:] == common
        assert abs(data["at"] - time.time()) < 30
    for data in (message.data for message in messages if message.name == "session_down"):
        assert tuple(data)[3:] == (*common, "bytes_in", "bytes_out", "duration_seconds")
        assert min(data["bytes_in"], data["bytes_out"], data["duration_seconds"]) >= 0


def test_the_end_of_a_session_tells_its_traffic_and_how_long_it_lasted(quiet: Running) -> None:
    with listen(quiet.api) as stream:
        before = quiet.api.get(f"/subscribers/{quiet.api.get('/subscribers?limit=1')['sessions'][0]['id']}")
        quiet.api.send("DELETE", f"/subscribers/{before['id']}")
        (message,) = stream.take(1)
    assert message.data["id"] == before["id"]
    assert message.data["duration_seconds"] == message.data["at"] - before["started_at"] > 0
    assert message.data["bytes_in"] >= before["bytes_in"] > 0
    assert message.data["bytes_out"] >= before["bytes_out"] > 0


def test_events_tell_what_the_list_shows(busy: Running) -> None:
    with listen(busy.api) as stream:
        before = stream.take(60)
        shown = {session["id"]: session for session in busy.api.get("/subscribers")["sessions"]}
        gone = {message.data["id"] for message in before if message.name == "session_down"}
        came = [message.data for message in before if message.name == "session_up"]
        missing = {data["id"] for data in came} - set(shown) - gone
        # Each ended before the list, and the event of its end is among those that follow.
        while missing:
            (message,) = stream.take(1)
            missing -= {message.data["id"]} if message.name == "session_down" else set()
    assert not gone & set(shown)
    stayed = [data for data in came if data["id"] in shown]
    assert stayed
    for data in stayed:
        assert data["at"] == shown[data["id"]]["started_at"]
        assert {name: data[name] for name in data if name != "at"}.items() <= shown[data["id"]].items()


def test_every_client_gets_the_same_bytes(busy: Running) -> None:
    with ExitStack() as streams:
        both = [streams.enter_context(listen(busy.api)) for _ in range(4)]
        first = both[0].take(1)[0].sequence + 40
        texts = set()
        for stream in both:
            found = stream.until(lambda message: message.sequence >= first + 20)
            texts.add(tuple(message for message in found if message.sequence >= first))
    assert len(texts) == 1


@pytest.mark.parametrize("role", ["admin", "operator"])
def test_every_role_may_listen(busy: Running, role: str) -> None:
    with listen(busy.api, role=role) as stream:
        assert_gapless(stream.take(5))


# Filters


@pytest.mark.parametrize("name", ["session_up", "session_down"])
def test_a_filter_by_name_leaves_out_the_rest(busy: Running, name: str) -> None:
    with listen(busy.api) as all_of_them, listen(busy.api, f"?events={name}") as some:
        wanted = [message for message in all_of_them.take(120) if message.name == name]
        found = some.until(lambda message: message.sequence >= wanted[-1].sequence)
    assert {message.name for message in found} == {name}
    first = found[0].sequence
    assert found == [message for message in wanted if message.sequence >= first]


def test_a_filter_by_both_names_is_none(busy: Running) -> None:
    with listen(busy.api, "?events=session_down,session_up") as stream:
        assert_gapless(stream.take(50))


def test_a_change_of_rates_comes_to_a_client_that_names_it(quiet: Running) -> None:
    session = quiet.api.get("/subscribers", params={"limit": 1})["sessions"][0]
    path = f"/subscribers/{session['id']}/rate"
    with listen(quiet.api, "?events=session_rate") as named, listen(quiet.api) as usual:
        assert quiet.api.send("PUT", path, json={"rate_down": "7 mbit", "expires_in": 60}).status_code == 200
        gone = disconnect_one(quiet.api)
        (rate,) = named.take(1)
        (down,) = usual.take(1)
    assert rate.name == "session_rate"
    assert rate.data["expires_at"] == pytest.approx(rate.data["at"] + 60, abs=2)
    assert (rate.data["id"], rate.data["username"]) == (session["id"], session["username"])
    assert (rate.data["rate_down"], rate.data["rate_up"]) == (7_000_000, session["rate_up"])
    assert (down.name, down.data["id"]) == ("session_down", gone["id"])


def test_a_filter_by_type_holds_for_sessions_that_come_and_that_go(busy: Running) -> None:
    # What went by before it listened tells the types of those who go.
    with listen(busy.api) as all_of_them:
        (first,) = all_of_them.take(1)
        with (
            resume(busy.api, first.id, query="?type=pppoe") as pppoe,
            resume(busy.api, first.id, query="?type=dhcp") as dhcp,
        ):
            everything = all_of_them.take(400)
            for stream, shown in ((pppoe, "PPPoE"), (dhcp, "DHCP")):
                found = stream.until(lambda message: message.sequence >= everything[-1].sequence)
                assert_of_type(shown, found, everything)


def assert_of_type(shown: str, found: list[Message], everything: list[Message]) -> None:
    type_of = {
        message.data["id"]: message.data["type"] for message in everything if message.name == "session_up"
    }
    names = set()
    for message in found:
        assert type_of.get(message.data["id"], shown) == shown or message.sequence > everything[-1].sequence
        names.add(message.name)
    assert names == {"session_up", "session_down"}
    theirs = [message for message in everything if type_of.get(message.data["id"]) == shown]
    assert set(theirs) <= set(found)


def test_filters_hold_together_and_for_what_is_resumed(busy: Running) -> None:
    with listen(busy.api) as stream:
        (first,) = stream.take(1)
        everything = stream.take(100)
    with resume(busy.api, first.id, query="?events=session_up&type=pppoe") as stream:
        found = stream.until(lambda message: message.sequence >= everything[-1].sequence)
    wanted = [
        message for message in everything if message.name == "session_up" and message.data["type"] == "PPPoE"
    ]
    assert [message for message in found if message.sequence <= everything[-1].sequence] == wanted


# Refusals


def test_a_filter_that_cannot_be_is_400_and_named(quiet: Running) -> None:
    for query, parameter in (
        ("?events=session_sideways", "events"),
        ("?events=session.up", "events"),
        ("?events=", "events"),
        ("?events=session_up,", "events"),
        ("?events=gap", "events"),
        ("?events=session_up&events=session_down", "events"),
        ("?type=ppp", "type"),
        ("?type=", "type"),
        ("?last_event_id=garbage", "last_event_id"),
        ("?last_event_id=abc-01", "last_event_id"),
        ("?last_event_id=abc--1", "last_event_id"),
        ("?last_event_id=abc-1%0A", "last_event_id"),
        ("?last_event_id=abc-%D9%A1", "last_event_id"),
        ("?last_event_id=abc-99999999999999999999", "last_event_id"),
        ("?event=session_up", "event"),
        ("?Last-Event-ID=abc-1", "Last-Event-ID"),
    ):
        status, body = refused(quiet, query, quiet.api.token("operator"))
        assert (status, body["status"]) == (400, "error")
        assert [problem["path"] for problem in body["errors"]] == [parameter]


@pytest.mark.parametrize("token", [None, "x", "a.b.c", ""])
def test_without_a_good_token_it_is_401_and_no_stream(quiet: Running, token: str | None) -> None:
    assert refused(quiet, "", token) == (401, CREDENTIALS)
    assert refused(quiet, "?events=nonsense", token) == (401, CREDENTIALS)


def test_a_token_that_has_expired_is_401(quiet: Running) -> None:
    old = issued(quiet.state, "admin", 99, lambda: time.time() - 100)
    assert refused(quiet, "", old) == (401, CREDENTIALS)


def test_head_has_the_headers_and_ends(quiet: Running) -> None:
    began = time.monotonic()
    answer = quiet.api.send("HEAD", "/events/subscribers")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    assert quiet.api.get("/subscribers/summary")
    # Before any heartbeat.
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_another_method_is_405(quiet: Running, method: str) -> None:
    answer = quiet.api.send(method, "/events/subscribers")
    assert answer.status_code == 405
    assert {"GET", "HEAD"} <= set(answer.headers["Allow"].split(", "))


# Coming back


def test_a_client_that_comes_back_by_header_gets_exactly_what_came_after(busy: Running) -> None:
    with listen(busy.api) as stream:
        messages = stream.take(40)
        with resume(busy.api, messages[9].id) as resumed:
            assert resumed.take(30) == messages[10:]
            rest = resumed.take(40)
        assert rest == stream.take(40)


def test_a_client_that_comes_back_by_query_gets_exactly_what_came_after(busy: Running) -> None:
    with listen(busy.api) as stream:
        messages = stream.take(40)
    with listen(busy.api, f"?last_event_id={messages[9].id}") as resumed:
        assert resumed.take(30) == messages[10:]
        assert_gapless([messages[-1], *resumed.take(20)])


def test_a_client_can_begin_with_the_first_event_of_all(busy: Running) -> None:
    with listen(busy.api) as stream:
        (now,) = stream.take(1)
    with resume(busy.api, f"{now.boot_id}-0") as resumed:
        found = resumed.take(now.sequence + 10)
    assert found[0].sequence == 1
    assert_gapless(found)


def test_a_client_that_comes_back_with_the_newest_event_waits_for_the_next(quiet: Running) -> None:
    with listen(quiet.api) as stream:
        disconnect_one(quiet.api)
        (last,) = stream.take(1)
        with resume(quiet.api, last.id) as resumed:
            disconnect_one(quiet.api)
            assert resumed.take(1) == stream.take(1)


def test_a_client_that_comes_back_to_another_worker_misses_nothing(busy: Running) -> None:
    workers = workers_of(busy.process)
    with ExitStack() as streams:
        first = streams.enter_context(listen(busy.api))
        messages = first.take(30)

        def elsewhere() -> Stream | None:
            stream = streams.enter_context(resume(busy.api, messages[4].id))
            return stream if worker_of(stream, workers) != worker_of(first, workers) else None

        other: Stream = wait_for("the other worker to take a connection", elsewhere, 20)
        assert other.take(25) == messages[5:]
        assert_gapless([messages[-1], *other.take(30)])


@pytest.mark.slow
def test_a_client_misses_nothing_when_all_workers_are_killed(busy: Running) -> None:
    with listen(busy.api) as stream:
        messages = stream.take(20)
        kill_workers(busy)
        with pytest.raises((OSError, HTTPException)):
            messages += stream.take(100_000)
    with resume(busy.api, messages[-1].id) as resumed:
        assert_gapless([*messages, *resumed.take(60)])


@pytest.mark.slow
def test_a_client_misses_nothing_when_the_api_alone_is_restarted(busy: Running, tmp_path: Path) -> None:
    for name in ("certificate.pem", "key.pem", "secret"):
        shutil.copy(busy.state / name, tmp_path)
    token, core = busy.api.token("operator"), busy.state / "core.sock"
    ledger = {"GATEWAY_API_STATE": str(busy.state)}
    with (
        running_api(core, tmp_path, **ledger) as url,
        Stream(url, tmp_path / "certificate.pem", token) as stream,
    ):
        messages = stream.take(20)
    headers = {"Last-Event-ID": messages[-1].id}
    with (
        running_api(core, tmp_path, **ledger) as url,
        Stream(url, tmp_path / "certificate.pem", token, headers=headers) as stream,
    ):
        assert_gapless([*messages, *stream.take(60)])


@pytest.mark.parametrize("id", ["garbage", "-", "0", "abc-1-2", "abc-x", "x" * 5000, "abc-" + "9" * 30])
def test_an_id_that_was_never_ours_is_a_gap_and_no_error(busy: Running, id: str) -> None:
    with resume(busy.api, id) as stream:
        gap, *messages = stream.take(20)
    assert gap.name == "gap"
    assert_gapless(messages)
    assert messages[0].sequence == gap.sequence + 1


def test_an_id_from_the_future_is_a_gap(busy: Running) -> None:
    with listen(busy.api) as stream:
        (now,) = stream.take(1)
    with resume(busy.api, f"{now.boot_id}-{now.sequence + 10_000_000}") as stream:
        gap, *messages = stream.take(10)
    assert (gap.name, gap.boot_id) == ("gap", now.boot_id)
    assert_gapless(messages)
    assert messages[0].sequence == gap.sequence + 1


def test_a_gap_tells_which_events_are_held_and_can_be_resumed_after(busy: Running) -> None:
    with resume(busy.api, "0123456789abcdef-7") as stream:
        gap, *messages = stream.take(10)
    assert gap.data == {"oldest": f"{gap.boot_id}-1", "newest": gap.id}
    with resume(busy.api, gap.id) as stream:
        assert stream.take(9) == messages


def test_a_gap_comes_through_every_filter(quiet: Running) -> None:
    with resume(quiet.api, "0123456789abcdef-7", query="?events=session_up&type=dhcp") as stream:
        assert stream.take(1)[0].name == "gap"


def test_an_empty_id_is_none(busy: Running) -> None:
    with resume(busy.api, "") as stream:
        assert_gapless(stream.take(5))


@pytest.mark.slow
def test_a_restarted_core_is_one_gap_for_who_listens_and_for_who_comes_back(own: Running) -> None:
    with listen(own.api) as stream:
        before = stream.take(20)
        core = core_of(own.process)
        os.kill(core, signal.SIGKILL)
        *rest, gap = stream.until(lambda message: message.name == "gap")
        assert_gapless([*before, *rest])
        after = stream.take(20)
        assert gap.boot_id != before[0].boot_id
        assert gap.data["newest"] == gap.id
        assert gap.data["oldest"].startswith(f"{gap.boot_id}-")
        assert_gapless(after)
        assert after[0].sequence == gap.sequence + 1
        for _ in range(4):
            with resume(own.api, before[-1].id) as resumed:
                gap, *messages = resumed.take(20)
                assert (gap.name, gap.boot_id) == ("gap", after[0].boot_id)
                assert_gapless(messages)
                assert messages[0].sequence == gap.sequence + 1


@pytest.mark.slow
def test_without_a_core_it_is_500_and_works_again_with_one(own: Running) -> None:
    core, token = core_of(own.process), own.api.token("operator")
    os.kill(core, signal.SIGSTOP)
    try:
        began = time.monotonic()
        status, body = refused(own, "", token)
        assert (status, body) == (500, {"status": "error", "message": "Core daemon unreachable"})
        assert time.monotonic() - began < 5
    finally:
        os.kill(core, signal.SIGCONT)
    with listen(own.api) as stream:
        assert_gapless(stream.take(10))


# The right to listen


def test_a_stream_ends_with_its_token_and_others_go_on(busy: Running) -> None:
    token = issued(busy.state, "operator", 3)
    with listen(busy.api) as other, listen(busy.api, token=token) as stream:
        assert ends_properly(stream) < 3 + SOON
        assert refused(busy, "", token) == (401, CREDENTIALS)
        assert_gapless(other.take(200))


def test_a_stream_ends_when_its_token_is_given_back_and_others_go_on(busy: Running) -> None:
    token = busy.api.new_token("operator")
    with listen(busy.api) as other, listen(busy.api, token=token) as stream:
        stream.take(1)
        assert busy.api.send("POST", "/auth/logout", token=token).status_code == 200
        assert ends_properly(stream) < SOON
        assert_gapless(other.take(200))


def test_a_silent_stream_ends_when_its_token_is_given_back(quiet: Running) -> None:
    token = quiet.api.new_token("operator")
    with listen(quiet.api, token=token) as stream:
        assert quiet.api.send("POST", "/auth/logout", token=token).status_code == 200
        assert ends_properly(stream) < SOON


def test_streams_end_when_their_user_logs_out_everywhere_and_others_go_on(quiet: Running) -> None:
    tokens = [quiet.api.new_token("operator") for _ in range(2)]
    with listen(quiet.api, token=quiet.api.token("admin")) as other:
        with listen(quiet.api, token=tokens[0]) as one, listen(quiet.api, token=tokens[1]) as two:
            assert quiet.api.send("POST", "/auth/logout-everywhere", token=tokens[0]).status_code == 200
            assert ends_properly(one) < SOON
            assert ends_properly(two) < SOON
        quiet.api.forget_tokens()
        disconnect_one(quiet.api)
        other.take(1)


def commit(api: Api, *operations: dict[str, Any]) -> None:
    for path, body in (("edit", {"operations": list(operations)}), ("commit", None)):
        answer = api.send("POST", f"/system/config/{path}", json=body)
        assert answer.status_code == 200, answer.text


def test_a_stream_ends_when_its_user_is_removed_or_demoted(busy: Running) -> None:
    for change in (
        {"op": "set", "path": "api.users.guest.role", "value": "operator"},
        {"op": "delete", "path": "api.users.guest"},
    ):
        user = {"username": "guest", "password_hash": SECRET_HASH, "role": "admin"}
        if change["op"] == "set":
            commit(
                busy.api,
                *(
                    {"op": "set", "path": f"api.users.guest.{name}", "value": user[name]}
                    for name in ("password_hash", "role")
                ),
            )
        token = issued(busy.state, "guest", 600)
        with listen(busy.api) as other, listen(busy.api, token=token) as stream:
            stream.take(1)
            commit(busy.api, change)
            assert ends_properly(stream) < SOON
            assert refused(busy, "", token) == (401, CREDENTIALS)
            assert_gapless(other.take(100))


@pytest.mark.slow
def test_streams_end_when_the_api_is_disabled(own: Running) -> None:
    with listen(own.api) as stream:
        stream.take(1)
        commit(own.api, {"op": "set", "path": "api.enabled", "value": False})
        assert ends_properly(stream) < SOON
    status, body = refused(own, "", own.api.token("operator"))
    assert (status, body["status"]) == (503, "error")


# Silence, and clients that are gone or slow


@pytest.mark.slow
def test_silence_is_broken_by_a_colon_on_a_line_and_no_blank_line(quiet: Running) -> None:
    began = time.monotonic()
    with listen(quiet.api) as stream:
        assert stream.read() == b":\n"
        assert 14 < time.monotonic() - began < 25
        disconnect_one(quiet.api)
        (message,) = stream.take(1)
        assert message.name == "session_down"


@pytest.mark.slow
def test_a_worker_gives_up_what_a_departed_client_held(busy: Running) -> None:
    workers = workers_of(busy.process)

    def sockets() -> int:
        return sum(len(list(Path(f"/proc/{worker}/fd").iterdir())) for worker in workers)

    busy.api.get("/health", None)
    before = sockets()
    with ExitStack() as streams:
        for _ in range(30):
            streams.enter_context(listen(busy.api)).take(1)
        assert sockets() >= before + 30
    wait_for("the sockets to be closed", lambda: sockets() < before + 15, 20)


@pytest.mark.slow
@pytest.mark.parametrize("own", [1500], indirect=True)
def test_a_client_that_never_reads_is_cut_off_and_harms_nobody(own: Running) -> None:
    api = own.api
    with collector(api) as reader, listen(api, receive_buffer=4096) as live:
        wait_for("some events", lambda: len(reader) > 100)
        with resume(api, f"{reader.messages[0].boot_id}-0", receive_buffer=4096) as resumed:
            began = time.monotonic()
            slowest = 0.0
            while not (is_cut(live) and is_cut(resumed)):
                assert time.monotonic() - began < 100
                asked = time.monotonic()
                api.get("/health", None)
                slowest = max(slowest, time.monotonic() - asked)
                time.sleep(0.1)
            took = time.monotonic() - began
            newest = reader.messages[-1].sequence
            wait_for("the reader to go on", lambda: reader.has(newest + 2000), 10)
            with pytest.raises((OSError, HTTPException)):
                live.take(10_000_000)
    _log.info("cut off after %.1f s, health's slowest answer meanwhile %.3f s", took, slowest)
    # Less than a client that never reads is waited for.
    assert slowest < 5
    assert reader.returns <= 1
    assert_gapless(reader.messages)


# Ends and restarts of the API


@pytest.mark.slow
def test_a_stop_ends_fifty_streams_properly_and_at_once(own: Running) -> None:
    with ExitStack() as opened:
        streams = [opened.enter_context(listen(own.api)) for _ in range(50)]
        for stream in streams:
            stream.take(1)
        master = master_of(own.process)
        began = time.monotonic()
        os.kill(master, signal.SIGTERM)
        for stream in streams:
            ends_properly(stream)
        streams_took = time.monotonic() - began
        wait_for("the end of gunicorn", lambda: not Path(f"/proc/{master}/cmdline").exists(), 20)
        took = time.monotonic() - began
    _log.info("50 streams ended after %.2f s, gunicorn after %.2f s", streams_took, took)
    # gunicorn waits half a minute for an open request.
    assert took < 20


@pytest.mark.slow
def test_silent_streams_end_as_soon(quiet: Running, tmp_path: Path) -> None:
    for name in ("certificate.pem", "key.pem", "secret"):
        shutil.copy(quiet.state / name, tmp_path)
    token = quiet.api.token("operator")
    with ExitStack() as opened:
        ledger = {"GATEWAY_API_STATE": str(quiet.state)}
        with running_api(quiet.state / "core.sock", tmp_path, **ledger) as url:
            certificate = tmp_path / "certificate.pem"
            streams = [opened.enter_context(Stream(url, certificate, token)) for _ in range(50)]
            began = time.monotonic()
        assert time.monotonic() - began < 20
        for stream in streams:
            assert ends_properly(stream) < SOON


@pytest.mark.slow
@pytest.mark.parametrize("own", [25], indirect=True)
def test_200_killed_workers_cost_no_client_an_event(own: Running) -> None:
    chance = random.Random(7)
    began = time.monotonic()
    with ExitStack() as opened:
        clients = [opened.enter_context(collector(own.api)) for _ in range(4)]
        wait_for("all to listen", lambda: all(len(client) for client in clients))
        for _ in range(KILLS):
            workers = workers_of(own.process)
            victim = chance.choice(workers)
            seen = sum(map(len, clients))
            os.kill(victim, signal.SIGKILL)
            wait_for_workers(own.process, 2, {victim})
            # Else it would be a test of workers that never came to serve anybody.
            wait_for("events", lambda seen=seen: sum(map(len, clients)) > seen, 20)
        newest = max(client.messages[-1].sequence for client in clients)
        wait_for("all to be there", lambda: all(client.has(newest + 50) for client in clients), 20)
    _log.info(
        "%d kills in %.1f s; events and returns of each client: %s",
        KILLS,
        time.monotonic() - began,
        [(len(client), client.returns) for client in clients],
    )
    for client in clients:
        assert_gapless(client.messages)
        assert client.returns > KILLS / 10


# A storm

STORM = 30_000


@pytest.mark.slow
@pytest.mark.parametrize("own", [5000], indirect=True)
def test_a_storm_of_events_reaches_a_reader_whole_and_the_api_answers_meanwhile(own: Running) -> None:
    api = own.api
    workers = workers_of(own.process)
    wait_for("the workers to be warm", lambda: api.get("/health", None))
    before = {worker: resident_megabytes(worker) for worker in workers}
    times = []
    with collector(api) as reader:
        wait_for("the first event", lambda: len(reader))
        first, deadline = reader.messages[0], time.monotonic() + 2 * PATIENCE
        while reader.messages[-1].sequence - first.sequence <= STORM:
            asked = time.monotonic()
            assert asked < deadline
            api.get("/health", None)
            times.append(time.monotonic() - asked)
        seen = len(reader)
    times.sort()
    p99 = times[int(len(times) * 0.99)]
    after = {worker: resident_megabytes(worker) for worker in workers_of(own.process)}
    _log.info(
        "%d events, %d returns, health's median %.1f ms and p99 %.1f ms, megabytes of workers %s, then %s",
        *(seen, reader.returns, times[len(times) // 2] * 1000, p99 * 1000),
        *(sorted(map(round, found.values())) for found in (before, after)),
    )
    assert_gapless(reader.messages)
    assert times[len(times) // 2] < 0.5
    assert set(after) == set(before)
    for worker in workers:
        assert after[worker] < 1.5 * before[worker] + 60
