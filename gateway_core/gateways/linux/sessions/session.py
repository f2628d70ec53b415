"""Session of the Linux gateway: the data that the source lists, and the terms from the configuration."""

from msgspec.structs import astuple, replace

from gateway_contract.contract import Record, record_of
from gateway_contract.core.sessions import SessionState, SessionSummary
from gateway_core.gateways.linux.daemons.source import START_JITTER_SECONDS, SourceSession
from gateway_core.gateways.linux.sessions.session_store import SessionKey
from gateway_core.records.clock import Expiry
from gateway_core.sessions.session import Counters, Session

NO_COUNTERS = Counters(0, 0, 0, 0)


class SessionTerms(Record, frozen=True):
    """Terms of a session. The terms of a new session are taken from the configuration. Rates are in bits per
    second."""

    gateway: str | None
    overhead_profile: str
    rate_down: int
    rate_up: int
    outer_vlan_id: int | None
    inner_vlan_id: int | None


class SessionRecord(Record, frozen=True):
    """Record of a session on disk, without the session's id.

    `terms` contains the rates in force; temporary rates are in force until `expiry`. `baseline` contains the
    counters of the session's device at the start of the session. `boot_id` identifies the boot of the machine
    in which the session started; `boot_id` is None in a record of an older version.
    """

    listed: SourceSession
    terms: SessionTerms
    baseline: Counters
    expiry: Expiry | None = None
    boot_id: str | None = None

    @classmethod
    def new(
        cls,
        source_session: SourceSession,
        terms: SessionTerms,
        baseline: Counters = NO_COUNTERS,
        boot_id: str | None = None,
    ) -> "SessionRecord":
        """Return the record of a new session. Rates that the source lists replace the default rates."""
        rates = {name: rate for name in _RATE_FIELDS if (rate := getattr(source_session, name)) is not None}
        return cls(source_session, replace(terms, **rates), baseline, boot_id=boot_id)

    def follow(self, source_session: SourceSession) -> "SessionRecord":
        """Return the record updated by the latest data of the source; return the same object if nothing
        changed. The latest change of a rate is in force, whether an operator or the source made the
        change."""
        before, terms = self.listed, self.terms
        if abs(source_session.started_at - before.started_at) <= START_JITTER_SECONDS:
            source_session = replace(source_session, started_at=before.started_at)
        for name in _RATE_FIELDS:
            rate, former = getattr(source_session, name), getattr(before, name)
            if rate is None:
                source_session = replace(source_session, **{name: former})
            elif rate != former:
                terms = replace(terms, **{name: rate})
        if source_session == before:
            return self
        # A rate that the source has changed is permanent.
        expiry = self.expiry if terms is self.terms else None
        return replace(self, listed=source_session, terms=terms, expiry=expiry)

    def with_rates(self, down_bps: int, up_bps: int, expiry: Expiry | None) -> "SessionRecord":
        """Return a copy of the record with these rates in force, until `expiry` if `expiry` is not None."""
        terms = replace(self.terms, rate_down=down_bps, rate_up=up_bps)
        return replace(self, terms=terms, expiry=expiry)


#: Rate fields that SourceSession and SessionTerms have in common.
_RATE_FIELDS = ("rate_down", "rate_up")


class LinuxSession(Session, frozen=True, kw_only=True):
    """Session of the Linux gateway, with the key and the record of the session on disk."""

    key: SessionKey
    record: SessionRecord

    @classmethod
    def of(
        cls, id: int, key: SessionKey, record: SessionRecord, state: SessionState, steering: tuple[bool, bool]
    ) -> "LinuxSession":
        """Return the session that a record describes. `steering` is the result of
        `SessionTable.compute_steering` for the address of the session."""
        source_session, terms = record.listed, record.terms
        vrf_steered, shared_address = steering
        return cls(
            # The terms come first, because the terms contain the rates in force.
            summary=record_of(SessionSummary, terms, source_session, id=id, state=state, source=key.source),
            gateway=terms.gateway if source_session.ip_address else None,
            overhead_profile=terms.overhead_profile,
            acct_session_id=source_session.acct_session_id,
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

    def count_traffic(self, device_counters: Counters) -> Counters:
        """Return the traffic of the session, computed from the counters of the session's device. If a counter
        is below the baseline, the device was recreated, and the baseline is not subtracted."""
        before = self.record.baseline
        since = Counters(
            device_counters.bytes_in - before.bytes_in,
            device_counters.bytes_out - before.bytes_out,
            device_counters.packets_in - before.packets_in,
            device_counters.packets_out - before.packets_out,
        )
        return device_counters if min(astuple(since)) < 0 else since
