"""Records of the gateway that the relay reads by polling: commits, faults, health and audit records.

The gateway keeps commits and audit records, so that none is lost while the relay is away. Faults and states
of health that come and go between two polls are not published.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from gateway_client.errors import Refused
from gateway_client.gateway import RemoteGateway
from gateway_relay.messages import make_record
from gateway_relay.spool import Spool

#: Seconds after which an audit record without a result, or with a count of requests, no longer changes.
_AUDIT_SETTLE_SECONDS = 120.0
#: Audit records of this time before the last one are read again, because records of two files are written at
#: different times.
_AUDIT_OVERLAP_SECONDS = 300.0
_AUDIT_RECORDS_PER_TRANSACTION = 500
#: End of the name of the audit records that are complete at once.
_COMPLETE_TRAIL = "known"

_log = logging.getLogger("gateway_relay")


class RecordPoller:
    """Poller of the records of one gateway, which adds new records to the spool. `clock` returns epoch
    seconds."""

    def __init__(self, gateway: RemoteGateway, spool: Spool, clock: Callable[[], float]) -> None:
        self._gateway = gateway
        self._spool = spool
        self._clock = clock
        #: Role of the user at the last poll.
        self._role: str | None = None

    def poll(self) -> None:
        """Add the records that are new since the last poll. While the spool is half full, the records wait at
        the gateway. Raises ClientError if the gateway does not respond, and OSError or sqlite3.Error if the
        spool cannot be used."""
        if self._spool.is_half_full():
            return
        polls: tuple[Callable[[], None], ...] = (
            self._poll_commits,
            partial(self._poll_state, "health", "/system/health/detail", _list_states),
            partial(self._poll_state, "faults", "/system/faults", _list_faults),
        )
        for poll in polls:
            try:
                poll()
            except Refused as error:
                # The core of another author may lack the method.
                _log.debug("the gateway refuses a poll: %s", error)
        if self._can_read_audit_log():
            self._poll_audit_records()

    def _poll_commits(self) -> None:
        archive = self._gateway.get("/system/config/archive")
        newest_first = [each for each in (archive["running"], *archive["revisions"]) if each is not None]
        records = [
            {name: each[name] for name in ("committed_at", "author", "comment")} for each in newest_first
        ][::-1]
        position = _encode(records)
        known = self._spool.read_position("commits")
        if position == known:
            return
        # At first contact, earlier commits are not news.
        earlier = records if known is None else msgspec.json.decode(known)
        remaining = Counter(map(_encode, earlier))
        in_second: Counter[int] = Counter()
        messages = []
        for record in records:
            in_second[record["committed_at"]] += 1
            if remaining[_encode(record)]:
                remaining[_encode(record)] -= 1
            else:
                key = f"{record['committed_at']}-{in_second[record['committed_at']]}"
                messages.append(make_record("commits", record, key))
        self._spool.add(messages, "commits", position)

    def _poll_state(self, subject: str, path: str, summarize: Callable[[Any], Any]) -> None:
        """Add the data at a path of the API if its summary has changed."""
        data = self._gateway.get(path)
        summary = _encode(summarize(data))
        if summary != self._spool.read_position(subject):
            message = make_record(subject, data, f"{round(self._clock() * 1000)}")
            self._spool.add([message], subject, summary)

    def _can_read_audit_log(self) -> bool:
        role = self._gateway.get("/auth/token")["user"]["role"]
        is_admin = bool(role == "admin")
        if role != self._role:
            self._role = role
            published = "published" if is_admin else "not published"
            _log.info("the user has the role %s: audit records are %s", role, published)
        return is_admin

    def _poll_audit_records(self) -> None:
        known = self._spool.read_position("audit")
        position = _AuditPosition(self._clock()) if known is None else _parse_audit_position(known)
        # The clock may have been set back after the last record.
        since = min(position.at, self._clock()) - _AUDIT_OVERLAP_SECONDS
        records = self._list_audit_records(since=int(max(0.0, since)))
        if known is None:
            # At first contact, earlier records are not news.
            position = msgspec.structs.replace(position, numbers=dict(map(_split_id, records)))
            self._spool.add([], "audit", _encode(position))
        found = list(self._list_new_records(records, position.numbers))
        if _find_holes(found, position.numbers):
            found = list(self._list_new_records(self._list_audit_records(), position.numbers))
        for label, missing in _find_holes(found, position.numbers).items():
            _log.error(
                "the audit records %s-%d to %s-%d are not published, because the gateway no longer has them",
                *(label, missing[0], label, missing[-1]),
            )
        for start in range(0, len(found), _AUDIT_RECORDS_PER_TRANSACTION):
            if self._spool.is_half_full():
                return
            part = found[start : start + _AUDIT_RECORDS_PER_TRANSACTION]
            numbers = position.numbers | dict(map(_split_id, part))
            position = _AuditPosition(max(each["at"] for each in part), numbers)
            self._spool.add([make_record("audit", each) for each in part], "audit", _encode(position))

    def _list_audit_records(self, **query: Any) -> list[Any]:
        """Return the audit records that match the query, oldest first."""
        return self._gateway.list_records("/audit", "records", query)[::-1]

    def _list_new_records(self, records: list[Any], numbers: Mapping[str, int]) -> Iterator[Any]:
        """Yield the records after these numbers, oldest first. A record that may still change, and those of
        the same file after it, wait for a later poll."""
        newest: dict[str, int] = dict(map(_split_id, records))
        waiting = set()
        for record in records:
            label, number = _split_id(record)
            # The numbers of a database that replaced a damaged one begin again.
            last = numbers.get(label, 0) if newest[label] >= numbers.get(label, 0) else 0
            if number <= last or label in waiting:
                continue
            is_old = record["at"] < self._clock() - _AUDIT_SETTLE_SECONDS
            if is_old or (label.endswith(_COMPLETE_TRAIL) and record.get("call_id") is None):
                yield record
            else:
                waiting.add(label)


class _AuditPosition(msgspec.Struct, frozen=True):
    """Position in the audit log: the time of the last record in epoch seconds, and the last number of each
    file."""

    at: float
    numbers: dict[str, int] = {}


def _parse_audit_position(text: str) -> _AuditPosition:
    return msgspec.json.decode(text, type=_AuditPosition)


def _find_holes(records: Iterable[Any], numbers: Mapping[str, int]) -> dict[str, range]:
    """Return the numbers that are missing between a position and the records after it, by the label of their
    file. The numbers of a file are consecutive."""
    oldest: dict[str, int] = {}
    for label, number in map(_split_id, records):
        oldest.setdefault(label, number)
    missing = {label: range(numbers[label] + 1, oldest[label]) for label in numbers.keys() & oldest.keys()}
    return {label: found for label, found in missing.items() if found}


def _split_id(record: Mapping[str, Any]) -> tuple[str, int]:
    label, _, number = record["id"].rpartition("-")
    return label, int(number)


def _list_states(health: Any) -> Any:
    return [health["state"], *([each["name"], each["state"]] for each in health["dependencies"])]


def _list_faults(data: Any) -> Any:
    return data["faults"]


def _encode(value: Any) -> str:
    return msgspec.json.encode(value).decode()
