"""Session of the Linux gateway, of what its source lists and what the configuration gives to it."""

from msgspec.structs import astuple, replace

from gateway_contract.contract import Record, record_of
from gateway_contract.core.sessions import SessionState, SessionSummary
from gateway_core.gateways.linux.daemons.source import START_JITTER_SECONDS, SourceSession
from gateway_core.gateways.linux.sessions.session_store import SessionKey
from gateway_core.records.clock import Expiry
from gateway_core.sessions.session import Counters, Session

NO_COUNTERS = Counters(0, 0, 0, 0)


class SessionTerms(Record, frozen=True):
    """Terms that the configuration gives to a new session, with the default rates in bits per second."""

    gateway: str | None
    overhead_profile: str
    rate_down: int
    rate_up: int
    outer_vlan_id: int | None
    inner_vlan_id: int | None


class SessionRecord(Record, frozen=True):
    """A session without its id, as it is on disk.

    The rates of `terms` are those in force, until `expiry` if they are temporary. `baseline` has the counters
    of the session's device at its start. `boot_id` names the boot in which the session started; None in a
    record of a version that did not store it.
    """

    listed: SourceSession
    terms: SessionTerms
    baseline: Counters
    expiry: Expiry | None = None
    boot_id: str | None = None

    @classmethod
    def new(
        cls,
        listed: SourceSession,
        terms: SessionTerms,
        baseline: Counters = NO_COUNTERS,
        boot_id: str | None = None,
    ) -> "SessionRecord":
        """Return the record of a session that starts. Rates that its source lists replace the default
        ones."""
        rates = {name: rate for name in _RATE_FIELDS if (rate := getattr(listed, name)) is not None}
        return cls(listed, replace(terms, **rates), baseline, boot_id=boot_id)

    def follow(self, listed: SourceSession) -> "SessionRecord":
        """Return the record after the source listed the session so: the same object if nothing changed. The
        last change of a rate is in force, whether by an operator or by the source."""
        before, terms = self.listed, self.terms
        if abs(listed.started_at - before.started_at) <= START_JITTER_SECONDS:
            listed = replace(listed, started_at=before.started_at)
        for name in _RATE_FIELDS:
            rate, former = getattr(listed, name), getattr(before, name)
            if rate is None:
                listed = replace(listed, **{name: former})
            elif rate != former:
                terms = replace(terms, **{name: rate})
        if listed == before:
            return self
        # A rate that the source lists is for good.
        expiry = self.expiry if terms is self.terms else None
        return replace(self, listed=listed, terms=terms, expiry=expiry)

    def with_rates(self, down_bps: int, up_bps: int, expiry: Expiry | None) -> "SessionRecord":
        """Return the record with other rates in force."""
        terms = replace(self.terms, rate_down=down_bps, rate_up=up_bps)
        return replace(self, terms=terms, expiry=expiry)


#: Fields of SourceSession and of SessionTerms.
_RATE_FIELDS = ("rate_down", "rate_up")


class LinuxSession(Session, frozen=True, kw_only=True):
    """A session with its key and its record on disk."""

    key: SessionKey
    record: SessionRecord

    @classmethod
    def of(
        cls, id: int, key: SessionKey, record: SessionRecord, state: SessionState, steering: tuple[bool, bool]
    ) -> "LinuxSession":
        """Return the session of a record. `steering` is what the SessionTable says of its address."""
        listed, terms = record.listed, record.terms
        vrf_steered, shared_address = steering
        return cls(
            # The terms come first: their rates are those in force.
            summary=record_of(SessionSummary, terms, listed, id=id, state=state, source=key.source),
            gateway=terms.gateway if listed.ip_address else None,
            overhead_profile=terms.overhead_profile,
            acct_session_id=listed.acct_session_id,
            vrf_steered=vrf_steered,
            shared_address=shared_address,
            expiry=record.expiry,
            key=key,
            record=record,
        )

    def with_state(self, state: SessionState) -> "LinuxSession":
        return replace(self, summary=replace(self.summary, state=state))

    @property
    def has_own_device(self) -> bool:
        return self.interface != self.access_interface

    def count_traffic(self, counted: Counters) -> Counters:
        """Return the traffic of the session by the counters of its device. A device that has counted less
        than at the session's start was made anew."""
        before = self.record.baseline
        since = Counters(
            counted.bytes_in - before.bytes_in,
            counted.bytes_out - before.bytes_out,
            counted.packets_in - before.packets_in,
            counted.packets_out - before.packets_out,
        )
        return counted if min(astuple(since)) < 0 else since
