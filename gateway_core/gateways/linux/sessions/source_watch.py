"""A source of sessions under watch: what it lists now is compared with what it listed before. The sign-ons
that fail there go to the journal."""

import logging
import threading
import time
from collections.abc import Mapping, Sequence

from gateway_contract.configuration import Configuration
from gateway_contract.core.sessions import SessionState, SessionType
from gateway_core.gateways.linux.daemons.source import (
    FailureSource,
    Source,
    SourceEnd,
    SourceFailure,
    SourceSession,
    SourceUnavailable,
)
from gateway_core.gateways.linux.demux.admission import AccessVlan
from gateway_core.gateways.linux.sessions.lifecycle import Lifecycle
from gateway_core.gateways.linux.sessions.session_store import SessionKey
from gateway_core.records.clock import Clock
from gateway_core.sessions.journal import Journal

#: Seconds between two polls without a trigger.
_SWEEP = 5.0
#: Seconds from a trigger to the poll, which serves all that come until then.
_DEBOUNCE = 0.05
#: Seconds between two readings of failed sign-ons.
_PAUSE = 5.0

_log = logging.getLogger(__name__)


class SourceWatch:
    """Polls one source. Its sessions are stale until it replies. Any thread may call."""

    def __init__(self, source: Source, lifecycle: Lifecycle, clock: Clock) -> None:
        self.source = source
        self._lifecycle = lifecycle
        self._clock = clock
        #: Held while it is polled.
        self._turn = threading.Lock()
        self._polls = 0
        self._listed: Mapping[str, SourceSession] = lifecycle.known(source.name)
        self.is_available = False
        #: True while all sessions that it lists are in the table.
        self.is_complete = False
        #: Epoch seconds from which it has not replied. None while it does, and before the first poll ends.
        self.silent_since: float | None = None
        self._failure = ""
        self._triggered = threading.Event()
        self._stopped = threading.Event()

    @property
    def name(self) -> str:
        return self.source.name

    def trigger(self) -> None:
        """Has `run` poll soon."""
        self._triggered.set()

    def stop(self) -> None:
        """Has `run` return."""
        self._stopped.set()
        self._triggered.set()

    def run(self) -> None:
        """Poll until `stop`: now, after each trigger, and from time to time."""
        while True:
            began = self._clock.steady()
            self.poll()
            ended = self._clock.steady()
            pause = 0.0
            if self._triggered.wait(_SWEEP):
                # After a rest as long as the poll: triggers without end take no more than half of the time of
                # the core and of the source.
                pause = max(_DEBOUNCE, ended + (ended - began) - self._clock.steady())
            if self._stopped.wait(pause):
                return
            # Before the poll: it may miss what comes while it runs.
            self._triggered.clear()

    def poll(self) -> None:
        """Bring the sessions up to a moment after the call. Callers at the same time share a poll."""
        before = self._polls
        with self._turn:
            # One that was under way at the call has the number `before`.
            if self._polls == before:
                self._polls += 1
                self._poll()

    def _poll(self) -> None:
        try:
            listed = self.source.sessions(self._listed)
            found = {session.key: session for session in listed}
            if len(found) != len(listed):
                raise SourceUnavailable("it lists two sessions with one key")
        except SourceUnavailable as error:
            self._lose(error)
            return
        self._compare(found)

    def _compare(self, found: dict[str, SourceSession]) -> None:
        before, name = self._listed, self.name
        gone = [SessionKey(name, key) for key in before if key not in found]
        # A session that did not change is the same object.
        differing = [session for key, session in found.items() if before.get(key) is not session]
        self._listed = {key: session for key, session in before.items() if key in found}
        self._lifecycle.end(gone, self._ends)
        if not self.is_available:
            self._regain()
        changed = {SessionKey(name, s.key): s for s in differing if s.key in before}
        self._lifecycle.follow(changed)
        new = {SessionKey(name, s.key): s for s in differing if s.key not in before}
        self.is_complete = not new or self._lifecycle.start(new)
        if not self.is_complete:
            found = {key: session for key, session in found.items() if key in before}
        self._listed = found
        self._lifecycle.settle()

    def _lose(self, error: SourceUnavailable) -> None:
        if not self._failure:
            _log.error("the sessions of %s are stale: %s", self.name, error)
            self._failure = str(error)
            self.silent_since = self._clock.wall()
        self.is_complete = False
        if self.is_available:
            self.is_available = False
            self._set_state(SessionState.STALE)

    def _regain(self) -> None:
        if self._failure:
            _log.info("%s replies again", self.name)
            self._failure = ""
        self.is_available, self.silent_since = True, None
        self._set_state(SessionState.ACTIVE)

    def _set_state(self, state: SessionState) -> None:
        self._lifecycle.set_state([SessionKey(self.name, key) for key in self._listed], state)

    def _ends(self, keys: Sequence[str]) -> Mapping[str, SourceEnd]:
        try:
            return self.source.ends(keys)
        except SourceUnavailable as error:
            _log.warning("the reasons of %d ends are not known: %s", len(keys), error)
            return dict.fromkeys(keys, SourceEnd())


class SignOnWatch:
    """Reads failures from time to time; without `failures` there are none. Any thread may configure."""

    def __init__(
        self, configuration: Configuration, failures: FailureSource | None, journal: Journal
    ) -> None:
        self._configuration = configuration
        self._failures = failures
        self._journal = journal
        self._warned = False

    def configure(self, configuration: Configuration) -> None:
        """The VLANs of access interfaces are those of its trunks."""
        self._configuration = configuration

    def run(self) -> None:
        """Read until the process ends."""
        while self._failures is not None:
            self.read(self._failures)
            time.sleep(_PAUSE)

    def read(self, failures: FailureSource) -> None:
        """Read once."""
        try:
            found = failures.read()
        except SourceUnavailable as error:
            (_log.debug if self._warned else _log.warning)("failed sign-ons are not known: %s", error)
            self._warned = True
            return
        self._warned = False
        for failure in found:
            self._add(failures.name, failure)

    def _add(self, source: str, failure: SourceFailure) -> None:
        trunks = self._configuration.interfaces.trunks
        vlan = AccessVlan.named(failure.access_interface, trunks)
        self._journal.add_failed_sign_on(
            failure.reason,
            failure.at,
            failure,
            type=SessionType.PPPOE,
            outer_vlan_id=None if vlan is None else vlan.outer_vlan_id,
            inner_vlan_id=None if vlan is None else vlan.vlan_id,
            source=source,
        )
