"""Events as bytes of a stream, and their ids."""

import json
from typing import Any

import pytest

from gateway_api.events import HEARTBEAT, encode_event, encode_gap, parse_id
from gateway_contract.core.sessions import SessionEvent


def event(**fields: Any) -> SessionEvent:
    return SessionEvent(
        **{
            "sequence": 57,
            "event": "session.up",
            "at": 1_772_366_400,
            "id": 217,
            "type": "PPPoE",
            "username": "alice",
            "ip_address": "100.64.0.60",
            "interface": "ppp216",
            "mac_address": "02:00:00:00:00:d8",
            "access_interface": "trunk0.1003",
            **fields,
        }
    )


def test_a_session_that_comes_is_written_to_the_letter() -> None:
    assert encode_event("84a7e8343baf37f9", event()) == (
        b"id: 84a7e8343baf37f9-57\nevent: session_up\n"
        b'data: {"id":217,"type":"PPPoE","username":"alice","ip_address":"100.64.0.60","at":1772366400,'
        b'"mac_address":"02:00:00:00:00:d8","access_interface":"trunk0.1003"}\n\n'
    )


def test_a_session_that_goes_is_written_to_the_letter() -> None:
    ended = {"bytes_in": 1200, "bytes_out": 34000, "duration_seconds": 61}
    gone = event(event="session.down", sequence=58, reason="user_request", **ended)
    assert encode_event("84a7e8343baf37f9", gone) == (
        b"id: 84a7e8343baf37f9-58\nevent: session_down\n"
        b'data: {"id":217,"username":"alice","reason":"user_request","at":1772366400,'
        b'"mac_address":"02:00:00:00:00:d8","access_interface":"trunk0.1003",'
        b'"bytes_in":1200,"bytes_out":34000,"duration_seconds":61}\n\n'
    )


def test_a_session_whose_rates_change_is_written_to_the_letter() -> None:
    changed = event(event="session.rate", sequence=59, rate_down=250_000_000, rate_up=50_000_000)
    assert encode_event("84a7e8343baf37f9", changed) == (
        b"id: 84a7e8343baf37f9-59\nevent: session_rate\n"
        b'data: {"id":217,"type":"PPPoE","username":"alice","ip_address":"100.64.0.60",'
        b'"rate_down":250000000,"rate_up":50000000,"expires_at":null,"at":1772366400,'
        b'"mac_address":"02:00:00:00:00:d8","access_interface":"trunk0.1003"}\n\n'
    )


def test_a_gap_is_written_to_the_letter() -> None:
    assert encode_gap("life", 3, 9) == (
        b'id: life-9\nevent: gap\ndata: {"oldest":"life-3","newest":"life-9"}\n\n'
    )


def test_a_heartbeat_is_a_comment_without_a_blank_line() -> None:
    assert HEARTBEAT == b":\n"


@pytest.mark.parametrize(
    "username", ["a\nb", "a\r\n\r\nevent: x", "\x00", "\u2028\u2029\x85", "\ufeffa", '"\\']
)
def test_no_username_breaks_out_of_its_line(username: str) -> None:
    block = encode_event("life", event(username=username))
    # As the most generous client splits lines: U+0085, U+2028 and U+2029 end one, too.
    _, _, data, *rest = block.decode().splitlines()
    assert rest == [""]
    assert "\x00" not in data
    assert json.loads(data.removeprefix("data: "))["username"] == username


@pytest.mark.parametrize("text", ["84a7e8343baf37f9-57", "a-0", "0-1", f"{'f' * 64}-{'9' * 18}"])
def test_an_id_is_read_as_it_was_written(text: str) -> None:
    assert str(parse_id(text)) == text


def test_what_is_no_id_is_refused() -> None:
    for text in (
        *("", "-", "a-", "-1", "a-01", "a--1", "a-+1", "a-1 ", " a-1", "a-1\n", "A-1", "a-1-2", "a-1.0"),
        *("a-\u0661", "\u00e9-1", f"{'f' * 65}-1", f"a-{'9' * 19}", "a_1", "a-1\x00"),
    ):
        with pytest.raises(ValueError, match="id of an event"):
            parse_id(text)
