"""Turns of others while a worker makes the body of a long list."""

import time
from collections.abc import Callable
from typing import Any

import gevent
import msgspec
import pytest

from gateway_api.web import responses
from gateway_api.web.routes import token_profile
from gateway_contract.core_client import ListParts

#: As the core sends them.
ARRAYS, SESSIONS = 8, 1000


def found(session: dict[str, Any]) -> ListParts:
    array = msgspec.Raw(msgspec.json.encode([session] * SESSIONS))
    return ListParts("sessions", [array] * ARRAYS, {"count": msgspec.Raw(b"%d" % (ARRAYS * SESSIONS))})


def turns_during(work: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> int:
    """Turns that another greenlet has until the work is done."""

    def other() -> None:
        nonlocal turns
        while not worker.ready():
            turns += 1
            gevent.sleep(1e-9)

    # As in a worker.
    monkeypatch.setattr(time, "sleep", gevent.sleep)
    turns = 0
    worker = gevent.spawn(work)
    gevent.joinall([worker, gevent.spawn(other)], raise_error=True)
    return turns


def test_others_have_turns_between_the_arrays_of_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    # Of a list of 100,000, an array has 430 KB.
    long = found({"username": "x" * 400})
    assert turns_during(lambda: responses.encode_list(long), monkeypatch) >= ARRAYS - 1


def test_others_have_turns_while_a_list_gets_the_form_of_the_alternative_profile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = {
        "id": 1,
        "username": "subscriber",
        "ip_address": "192.0.2.1",
        "interface": "ppp0",
        "rate_down": 1000,
        "rate_up": 1000,
        "started_at": 1,
    }
    assert turns_during(lambda: token_profile.encode_list(found(session)), monkeypatch) >= 3 * ARRAYS


def test_the_arrays_of_a_list_are_one_in_its_body() -> None:
    body = msgspec.json.decode(responses.encode_list(found({"id": 1})))
    assert body["data"] == {"sessions": [{"id": 1}] * (ARRAYS * SESSIONS), "count": ARRAYS * SESSIONS}
