"""Sessions in tables."""

from collections.abc import Sequence

from gateway_api.cli.ctl.gateway import Record
from gateway_api.cli.ctl.results import ShownColumn, WholeRecord
from gateway_api.cli.ctl.tables import aligned
from gateway_api.cli.ctl.texts import moment, plain, rate


def address(record: Record) -> str:
    """The address of a session: IPv4, or else IPv6."""
    return plain(record.get("ip_address") or record.get("ipv6_address"))


COLUMNS = (
    ShownColumn("id"),
    ShownColumn("type"),
    ShownColumn("username"),
    WholeRecord("ip_address", "ADDRESS", address),
    ShownColumn("interface"),
    ShownColumn("rate_down", "DOWN", rate),
    ShownColumn("rate_up", "UP", rate),
    ShownColumn("started_at", "SINCE", moment),
)


def table(records: Sequence[Record]) -> str:
    """The sessions as lines, or nothing without any."""
    columns = COLUMNS[:5]
    if not records:
        return ""
    rows = [[each.text(record) for each in columns] for record in records]
    return "\n".join([*aligned([[each.head for each in columns], *rows]), ""])
