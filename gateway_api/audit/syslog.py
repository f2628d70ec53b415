"""Formats of forwarded audit records: a syslog message (RFC 5424), and an entry of systemd's journal.

The text of both is the record as JSON, with the same `id` as in the API. The JSON is ASCII, and the control
characters in its strings are escaped. So a syslog message has no byte order mark, which RFC 5424 section 6.4
requires only of text that is declared as UTF-8. The messages have no structured data: names of our own would
need a private enterprise number (section 6.3.2).
"""

import json
import re
from datetime import UTC, datetime
from typing import Any, NamedTuple

from gateway_api.audit.record import encode

#: Facility "log audit" (RFC 5424 section 6.2.1).
FACILITY = 13
#: Severities by the result of a record: notice, warning, error.
_SEVERITIES = {"done": 5, "refused": 4, "unanswered": 4, "failed": 3}
#: Octets of a message that receivers should accept (RFC 5425 section 4.3.1).
MAX_MESSAGE_BYTES = 8192
#: Limits of each value of a record that is too long, in characters. The first limit is used with which the
#: record fits.
_VALUE_LIMITS = (2000, 500, 50)
#: RFC 5424 section 6.2.
_MAX_HOSTNAME_LENGTH, _MAX_MESSAGE_ID_LENGTH = 255, 32


class ForwardedRecord(NamedTuple):
    """Record to forward: the name of the program that wrote the record, the id, the time in epoch seconds,
    the action, the severity, and the record as JSON."""

    program: str
    id: str
    at: float
    action: str
    severity: int
    text: str

    @classmethod
    def of(cls, program: str, id: str, text: str) -> "ForwardedRecord":
        """Return the record with the JSON `text`. Its long values are cut if a message would be too long."""
        values: dict[str, Any] = {"id": id, **json.loads(text)}
        # Room for the longest header.
        limit = MAX_MESSAGE_BYTES - _MAX_HOSTNAME_LENGTH - 128
        fitting = encode(values)
        for value_limit in _VALUE_LIMITS:
            if len(fitting) <= limit:
                break
            fitting = encode({name: _cut(value, value_limit) for name, value in values.items()})
        return cls(program, id, values["at"], values["action"], _SEVERITIES[values["result"]], fitting)

    def format_message(self, hostname: str) -> bytes:
        """Return the record as a syslog message of at most `MAX_MESSAGE_BYTES`."""
        priority = 8 * FACILITY + self.severity
        host = _make_name(hostname, _MAX_HOSTNAME_LENGTH)
        message_id = _make_name(self.action, _MAX_MESSAGE_ID_LENGTH)
        header = f"<{priority}>1 {_format_time(self.at)} {host} {self.program} - {message_id} -"
        return f"{header} {self.text}".encode("ascii")

    def format_entry(self) -> bytes:
        """Return the record as an entry in the journal's own protocol
        (https://systemd.io/JOURNAL_NATIVE_PROTOCOL)."""
        fields = {
            "MESSAGE": self.text,
            "PRIORITY": self.severity,
            "SYSLOG_FACILITY": FACILITY,
            "SYSLOG_IDENTIFIER": f"{self.program}-audit",
            "GATEWAY_AUDIT_ID": self.id,
        }
        return "".join(f"{name}={value}\n" for name, value in fields.items()).encode("ascii")


def _cut(value: Any, limit: int) -> Any:
    """Return the beginning of a text, or an object with the beginning of a JSON value, as in the audit log.
    Return a short value unchanged."""
    if isinstance(value, str):
        return value[:limit]
    text = encode(value)
    if len(text) <= limit:
        return value
    if isinstance(value, dict) and value.get("cut") is True:
        return {**value, "beginning": str(value.get("beginning"))[: limit // 2]}
    return {"cut": True, "characters": len(text), "beginning": text[: limit // 2]}


def _make_name(text: str, max_length: int) -> str:
    """Return a text as a field of the header: printable ASCII without spaces, or `-` for an empty text."""
    return re.sub(r"[^!-~]", "_", text)[:max_length] or "-"


def _format_time(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError):
        # RFC 5424 section 6.2.3: the time is not known. The JSON has the number.
        return "-"
