"""The sessions that another configuration of the demux ends."""

from collections.abc import Iterable

from gateway_api.core.configuration.sections import Configuration
from gateway_api.core.gateways.linux.demux.admission import AccessVlan
from gateway_api.core.gateways.linux.sessions.session import LinuxSession


def ended_by(
    sessions: Iterable[LinuxSession], running: Configuration, wanted: Configuration
) -> dict[int, str]:
    """The ids of the sessions on a trunk that the demux loses, in the order of the sessions, with their
    trunks. One that arrived on no trunk of the demux, such as on an interface of the operator's, is not the
    configuration's to end."""
    lost = set(running.demux.trunks).difference(wanted.demux.trunks)
    # By all trunks, as everywhere: `eth0.5.100` may be a VLAN of `eth0.5`, or two tags on `eth0`.
    trunks = running.interfaces.trunks
    return {
        each.id: vlan.trunk
        for each in sessions
        if (vlan := AccessVlan.named(each.access_interface, trunks)) is not None and vlan.trunk in lost
    }
