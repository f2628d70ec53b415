"""Sessions, tables of them, and lists as a caller gets them in one reply."""

from ipaddress import IPv4Address, IPv4Network
from typing import Any

from msgspec.structs import replace

from gateway_contract.configuration import Cgnat
from gateway_contract.contract import Page
from gateway_contract.core.sessions import SessionSummary
from gateway_core.records.paging import Reply, Rows, make_list_reply
from gateway_core.sessions.session import Session
from gateway_core.sessions.table import SessionTable

FIELDS = SessionSummary.__struct_fields__


def session(id: int, **changes: Any) -> Session:
    """Return a session whose every text is its own, unless `changes` say otherwise."""
    summary = SessionSummary(
        id=id,
        type="PPPoE",
        username=f"user{id}",
        ip_address=f"100.64.{id >> 8}.{id & 255}",
        interface=f"ppp{id}",
        rate_down=100,
        rate_up=20,
        state="active",
        started_at=1_700_000_000 + id,
        mac_address=f"02:00:00:00:{id >> 8:02x}:{id & 255:02x}",
        access_interface=f"trunk0.{id}",
        ipv6_address=None,
        ipv6_prefix=None,
        delegated_prefixes=(),
        outer_vlan_id=None,
        inner_vlan_id=id,
        source="lab",
    )
    whole = Session(
        summary=summary,
        gateway="100.64.0.1",
        overhead_profile="pppoe_ethernet",
        acct_session_id=f"{id:016x}",
        vrf_steered=False,
        shared_address=True,
    )
    of_summary = {name: changes.pop(name) for name in FIELDS if name in changes}
    return replace(whole, summary=replace(summary, **of_summary), **changes)


CGNAT = Cgnat(
    enabled=True,
    vrf_name="cgnat",
    vrf_table=100,
    handoff_interface="cgnat0",
    handoff_gateway=IPv4Address("10.255.1.2"),
    source_range=IPv4Network("203.0.113.0/24"),
)


def table_of(*sessions: Session) -> SessionTable[Session]:
    """Return a table of these sessions."""
    table: SessionTable[Session] = SessionTable(CGNAT)
    for each in sessions:
        table.add(each)
    return table


def fields_of(reply: Reply) -> dict[str, Any]:
    """Return the fields of a reply, in one dictionary if it is a whole list."""
    return reply if isinstance(reply, dict) else reply.whole()


def list_of(field: str, rows: Rows, page: Page | None, order: str) -> dict[str, Any]:
    """Return the fields of the reply that lists `rows`."""
    return fields_of(make_list_reply(field, rows, page, order))
