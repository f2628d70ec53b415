"""The overhead profiles: what an access line adds to each IP packet on the wire.

The numbers are for tc(8)'s `overhead` and `mpu`: preamble 8, Ethernet header 14, checksum 4 and
inter-frame gap 12 make 38; a VLAN tag is 4, PPPoE with PPP is 8 (RFC 2516). The least frame, with
preamble and gap, takes 84 bytes of the line.
"""

from gateway_api.wire.core import OverheadProfile

_ETHERNET = 38
_VLAN = 4
_PPPOE = 8
_LEAST = 84

OVERHEAD_PROFILES = {
    profile.name: profile
    for profile in (
        OverheadProfile("none", 0, 0, "IP packets as they are"),
        OverheadProfile(
            "pppoe_ethernet",
            _ETHERNET + _VLAN + _PPPOE,
            _LEAST,
            "PPPoE over Ethernet with one VLAN tag",
        ),
        OverheadProfile(
            "pppoe_qinq",
            _ETHERNET + 2 * _VLAN + _PPPOE,
            _LEAST,
            "PPPoE over Ethernet with two VLAN tags",
        ),
        OverheadProfile("ipoe_ethernet", _ETHERNET + _VLAN, _LEAST, "IP over Ethernet with one VLAN tag"),
        OverheadProfile("ipoe_qinq", _ETHERNET + 2 * _VLAN, _LEAST, "IP over Ethernet with two VLAN tags"),
    )
}
