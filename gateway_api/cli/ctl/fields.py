"""The fields of records as people see them: the label of each, and how its value shows."""

from collections.abc import Callable
from typing import Any, NamedTuple

from gateway_api.cli.ctl.texts import duration, moment, plain, rate, size, speed
from gateway_api.wire.configuration import ROOT, Seconds, walk


class ShownField(NamedTuple):
    """`text` makes a text of a value of JSON."""

    label: str
    text: Callable[[Any], str] = plain


#: Fields whose label is not their name in words, or whose value has a unit. By their names in the API.
_FIELDS = {
    # Times
    "at": ShownField("Time", moment),
    "committed_at": ShownField("Committed at", moment),
    "confirm_deadline": ShownField("Confirm until", moment),
    "created_at": ShownField("Created", moment),
    "ended_after": ShownField("Ended after", moment),
    "ended_at": ShownField("Ended", moment),
    "ended_before": ShownField("Ended before", moment),
    "expires_at": ShownField("Expires at", moment),
    "failing_since": ShownField("Failing since", moment),
    "finished_at": ShownField("Finished", moment),
    "first_at": ShownField("First", moment),
    "last_at": ShownField("Last", moment),
    "next_attempt_at": ShownField("Next", moment),
    "paused_until": ShownField("Paused until", moment),
    "rate_expires_at": ShownField("Rates until", moment),
    "since": ShownField("Since", moment),
    "started_at": ShownField("Started", moment),
    # Durations
    "duration_seconds": ShownField("Duration", duration),
    "step_seconds": ShownField("Step", duration),
    "uptime_seconds": ShownField("Uptime", duration),
    # Rates that are set, and traffic that is measured
    "rate_down": ShownField("Rate down", rate),
    "rate_up": ShownField("Rate up", rate),
    "rate_down_bps": ShownField("Rate down", rate),
    "rate_up_bps": ShownField("Rate up", rate),
    "former_rate_down_bps": ShownField("Former rate down", rate),
    "former_rate_up_bps": ShownField("Former rate up", rate),
    "down_bps": ShownField("Traffic down", speed),
    "up_bps": ShownField("Traffic up", speed),
    "down_pps": ShownField("Packets/s down"),
    "up_pps": ShownField("Packets/s up"),
    # Bytes
    "bytes_in": ShownField("Bytes in", size),
    "bytes_out": ShownField("Bytes out", size),
    "rx_bytes": ShownField("Bytes in", size),
    "tx_bytes": ShownField("Bytes out", size),
    # Names
    "acct_session_id": ShownField("Accounting id"),
    "ca": ShownField("CA certificate"),
    "dev": ShownField("Interface"),
    "dhcp": ShownField("DHCP"),
    "dst": ShownField("Destination"),
    "handoff_gateway": ShownField("Next hop"),
    "id": ShownField("ID"),
    "ifb_device": ShownField("IFB device"),
    "ifindex": ShownField("Index"),
    "inner_vlan_id": ShownField("VLAN"),
    "ip_address": ShownField("Address"),
    "ipv6_address": ShownField("IPv6 address"),
    "ipv6_prefix": ShownField("IPv6 prefix"),
    "mac_address": ShownField("MAC address"),
    "message_id": ShownField("Message id"),
    "mpu": ShownField("MPU"),
    "mtu": ShownField("MTU"),
    "oper_state": ShownField("State"),
    "outer_vlan_id": ShownField("Outer VLAN"),
    "ppp_interface": ShownField("PPP interface"),
    "pppoe": ShownField("PPPoE"),
    "public_ip_sessions": ShownField("Sessions with public addresses"),
    "session_count": ShownField("Sessions"),
    "session_id": ShownField("Session"),
    "url": ShownField("URL"),
    "vlan_id": ShownField("VLAN"),
    "vrf_name": ShownField("VRF"),
    "vrf_steered": ShownField("Steered to CGNAT"),
    "vrf_steered_sessions": ShownField("Sessions steered to CGNAT"),
    "vrf_table": ShownField("VRF table"),
}


_SECONDS = {path.rpartition(".")[2] for path, field in walk(ROOT) if isinstance(field.kind, Seconds)}


def shown(name: str) -> ShownField:
    """The label and the text of any field: one without an entry has its name in words, and is plain unless
    the configuration has it in seconds."""
    words = (name[:1].upper() + name[1:]).replace("_", " ")
    return _FIELDS.get(name) or ShownField(words, duration if name in _SECONDS else plain)
