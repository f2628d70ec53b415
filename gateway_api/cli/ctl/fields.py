"""The fields of records as people see them: the label of each, and how its value shows."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from gateway_api.cli.ctl.texts import duration, moment, plain, rate, size, speed
from gateway_api.wire.configuration import ROOT, Seconds, walk


class ShownField(NamedTuple):
    """`text` makes a text of a value of JSON."""

    label: str
    text: Callable[[Any], str] = plain


#: By the end of a name, which its label leaves out.
_UNITS: dict[str, Callable[[Any], str]] = {"_at": moment, "_seconds": duration, "_bps": rate}
#: Other fields whose values have a unit. By their names in the API.
_TEXTS: dict[str, Callable[[Any], str]] = {
    **dict.fromkeys(("at", "since", "failing_since", "ended_after", "ended_before"), moment),
    **dict.fromkeys(("confirm_deadline", "paused_until"), moment),
    **{path.rpartition(".")[2]: duration for path, field in walk(ROOT) if isinstance(field.kind, Seconds)},
    # Rates that are set, and traffic that is measured
    **dict.fromkeys(("rate_down", "rate_up"), rate),
    **dict.fromkeys(("down_bps", "up_bps"), speed),
    **dict.fromkeys(("bytes_in", "bytes_out", "rx_bytes", "tx_bytes"), size),
}
#: Labels that are not the name in words.
_LABELS = {
    "acct_session_id": "Accounting id",
    "at": "Time",
    "ca": "CA certificate",
    "committed_at": "Committed at",
    "confirm_deadline": "Confirm until",
    "dev": "Interface",
    "dhcp": "DHCP",
    "down_bps": "Traffic down",
    "down_pps": "Packets/s down",
    "dst": "Destination",
    "expires_at": "Expires at",
    "handoff_gateway": "Next hop",
    "id": "ID",
    "ifb_device": "IFB device",
    "ifindex": "Index",
    "inner_vlan_id": "VLAN",
    "ip_address": "Address",
    "ipv6_address": "IPv6 address",
    "ipv6_prefix": "IPv6 prefix",
    "mac_address": "MAC address",
    "mpu": "MPU",
    "mtu": "MTU",
    "next_attempt_at": "Next",
    "oper_state": "State",
    "outer_vlan_id": "Outer VLAN",
    "ppp_interface": "PPP interface",
    "pppoe": "PPPoE",
    "public_ip_sessions": "Sessions with public addresses",
    "rate_expires_at": "Rates until",
    "rx_bytes": "Bytes in",
    "session_count": "Sessions",
    "session_id": "Session",
    "tx_bytes": "Bytes out",
    "up_bps": "Traffic up",
    "up_pps": "Packets/s up",
    "url": "URL",
    "vlan_id": "VLAN",
    "vrf_name": "VRF",
    "vrf_steered": "Steered to CGNAT",
    "vrf_steered_sessions": "Sessions steered to CGNAT",
    "vrf_table": "VRF table",
}


@cache
def shown(name: str) -> ShownField:
    """The label and the text of any field."""
    unit = next((end for end in _UNITS if name.endswith(end)), "")
    words = name.removesuffix(unit).replace("_", " ")
    label = _LABELS.get(name) or words[:1].upper() + words[1:]
    return ShownField(label, _TEXTS.get(name) or _UNITS.get(unit, plain))
