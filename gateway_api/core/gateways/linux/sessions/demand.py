"""The questions of the reconciler to the whole gateway."""

from collections.abc import Mapping

from gateway_api.core.gateways.linux.dataplane.wanted import WantedSession
from gateway_api.core.gateways.linux.demux.access import AccessLines
from gateway_api.core.gateways.linux.demux.admission import AccessVlan
from gateway_api.core.gateways.linux.demux.demultiplexer import Demultiplexer
from gateway_api.core.gateways.linux.demux.vlan_devices import VlanDevices
from gateway_api.core.gateways.linux.sessions.provision import Provision
from gateway_api.core.gateways.linux.sessions.tracker import Tracker


class SessionDemand:
    """The `Demand` of the tracker's sessions. Any thread may call."""

    def __init__(
        self,
        provision: Provision,
        tracker: Tracker,
        devices: VlanDevices,
        lines: AccessLines,
        demux: Demultiplexer,
    ) -> None:
        self._provision = provision
        self._tracker = tracker
        self._devices = devices
        self._lines = lines
        self._demux = demux
        #: Sources that have not replied since the start.
        self._silent = set(tracker.unavailable_sources)

    def wanted(self) -> Mapping[int, WantedSession]:
        return self._provision.wanted()

    def is_complete(self) -> bool:
        self._silent.intersection_update(self._tracker.unavailable_sources)
        return not self._silent

    def is_fresh(self) -> bool:
        return not self._tracker.unavailable_sources

    def restore_vlan(self, interface: str) -> bool:
        """As Demand. Its sessions end if their daemon has sockets of the device that is gone; with dnsmasq
        they go on. A name that is no VLAN of a trunk is left alone."""
        vlan = AccessVlan.named(interface, self._provision.trunks)
        if vlan is None:
            return False
        # Before the device is there: what fails now is tried again while it is missing.
        self._lines.release(interface)
        self._devices.make(vlan)
        self._demux.adopt(vlan.trunk)
        return True
