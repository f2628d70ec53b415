"""Sessions as the alternative profile shows them: rates and times for people to read."""

import time
from functools import lru_cache
from typing import Any

import msgspec

from gateway_api.base.rates import rate_text
from gateway_api.daemon.calls import decoded
from gateway_api.web.uptime import uptime

#: Some milliseconds of work; a list of 100,000 would hold up the worker for half a second.
_AT_ONCE = 1000
#: Most sessions have one of a few rates.
_rate_text = lru_cache(1024)(rate_text)


class _Summary(msgspec.Struct, gc=False):
    id: int
    username: str
    ip_address: str
    interface: str
    rate_down: int
    rate_up: int
    started_at: int


class _Detail(msgspec.Struct):
    rate_down_bps: int
    rate_up_bps: int
    started_at: int


class Subscriber(msgspec.Struct, frozen=True, gc=False):
    """An item of the list."""

    id: int
    username: str
    ip_address: str
    interface: str
    speed_down: str
    speed_up: str
    uptime: str


def subscribers(sessions: msgspec.Raw, now: float) -> list[Subscriber]:
    """The core's records of a list, at a moment in epoch seconds. Raises CoreUnavailable for nonsense."""
    made = []
    for number, session in enumerate(decoded(list[_Summary], sessions)):
        if number % _AT_ONCE == 0:
            # Under gevent, others are served meanwhile.
            time.sleep(0)
        made.append(_subscriber(session, now))
    return made


def subscriber(session: msgspec.Raw, now: float) -> dict[str, Any]:
    """The core's record of one session as it is, with the texts besides. Raises CoreUnavailable."""
    detail = decoded(_Detail, session)
    return {
        **decoded(dict[str, msgspec.Raw], session),
        "speed_down": _rate_text(detail.rate_down_bps),
        "speed_up": _rate_text(detail.rate_up_bps),
        "uptime": uptime(detail.started_at, now),
    }


def _subscriber(session: _Summary, now: float) -> Subscriber:
    return Subscriber(
        session.id,
        session.username,
        session.ip_address,
        session.interface,
        _rate_text(session.rate_down),
        _rate_text(session.rate_up),
        uptime(session.started_at, now),
    )
