"""The ports of the demultiplexer."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from gateway_api.core.gateways.linux.demux.admission import AccessVlan
from gateway_api.wire.core.sessions import SessionType


class Devices(Protocol):
    """The VLAN devices of the kernel. Each method raises GatewayApiError, with a text for the log."""

    def existing(self, trunk: str) -> Iterable[AccessVlan]:
        """The VLANs on a trunk with a device of the VLAN's name; none if there is no such trunk."""

    def make(self, vlan: AccessVlan) -> None:
        """Makes the device with the name of the VLAN, and where there are two tags the outer one, and sets
        them up. What exists stays."""

    def remove(self, vlans: Sequence[AccessVlan]) -> None:
        """Removes the devices that exist, and the outer ones that `make` made and that carry nothing then."""


class VlanServer(Protocol):
    """A server of subscribers. Each method raises GatewayApiError, with a text for the log."""

    def serve(self, interfaces: Sequence[str], type: SessionType, /) -> None:
        """Accepts sessions of a type on devices; after an error, perhaps on some of them. It is no error if
        the source does so already."""

    def release(self, interface: str, /) -> None:
        """Ends the service on a device. It is no error if it is not served."""
