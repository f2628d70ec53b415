"""The traffic of sessions, from the counters of their devices."""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NoReturn

from gateway_api.base.errors import NotDone
from gateway_api.core.gateways.linux.dataplane.device_counters import DeviceCounters
from gateway_api.core.gateways.linux.kernel.messages import KernelError
from gateway_api.core.gateways.linux.sessions.session import LinuxSession
from gateway_api.core.gateways.linux.sessions.session_store import SessionStoreUnavailable
from gateway_api.core.sessions.session import Counters
from gateway_api.core.sessions.table import SessionTable


@contextmanager
def not_done(step: str) -> Iterator[None]:
    """Raises NotDone with the `step`. The texts have no secret, and nothing that a subscriber sent."""
    try:
        yield
    except (KernelError, SessionStoreUnavailable) as error:
        raise NotDone(step, str(error)) from error


#: Seconds between two readings of all counters.
_EACH = 5.0

_log = logging.getLogger(__name__)


class SessionTraffic:
    """The traffic of the sessions in a table. Any thread may call."""

    def __init__(self, sessions: SessionTable[LinuxSession], counters: DeviceCounters) -> None:
        self._sessions = sessions
        self._counters = counters

    def of(self, session: LinuxSession) -> Counters:
        """Raises NotDone."""
        with not_done("read the counters of the session"):
            return session.traffic(self._counters.now(session.interface))

    def all(self) -> Mapping[int, Counters]:
        """By session id, from one reading. Raises NotDone."""
        with not_done("read the counters of all sessions"):
            self._sweep()
        return {each.id: each.traffic(self._counters.last(each.interface)) for each in self._sessions.all()}

    def run(self) -> NoReturn:
        """Reads all counters from time to time, for sessions that end."""
        while True:
            try:
                self._sweep()
            except KernelError as error:
                _log.warning("the traffic of sessions that end now may be too low: %s", error)
            time.sleep(_EACH)

    def _sweep(self) -> None:
        self._counters.sweep({each.interface for each in self._sessions.all()})
