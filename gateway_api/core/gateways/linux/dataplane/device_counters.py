"""The counters of the devices of sessions."""

from collections.abc import Collection, Iterable

from gateway_api.core.gateways.linux.kernel.messages import NoDevice
from gateway_api.core.gateways.linux.kernel.reader import KernelReader
from gateway_api.core.sessions.session import Counters
from gateway_api.wire.core.network import InterfaceStats


class DeviceCounters:
    """Counters by the name of a device. What a device receives comes from the subscriber. Raises KernelError.
    Any thread may call."""

    def __init__(self, reader: KernelReader) -> None:
        self._reader = reader
        self._last: dict[str, InterfaceStats] = {}

    def sweep(self, used: Collection[str]) -> None:
        """Reads those of all devices. Of the devices that sessions use, one that is gone keeps its last ones:
        a session may end long after its device, while its source does not reply."""
        present = self._reader.statistics()
        gone = {device: stats for device in used if (stats := self._last.get(device)) is not None}
        self._last = {**gone, **present}

    def forget(self, devices: Iterable[str]) -> None:
        """Forgets the counters of devices that were made anew: until the next sweep, their names would have
        the counters of former ones."""
        for device in devices:
            self._last.pop(device, None)

    def now(self, device: str) -> Counters:
        """If the device is gone, those of the last sweep that saw it."""
        try:
            return _counters(self._reader.link(device).stats)
        except NoDevice:
            return self.last(device)

    def last(self, device: str) -> Counters:
        """The counters of the last sweep that saw the device; zeros without one."""
        return _counters(self._last.get(device, InterfaceStats()))


def _counters(stats: InterfaceStats) -> Counters:
    return Counters(
        bytes_in=stats.rx_bytes,
        bytes_out=stats.tx_bytes,
        packets_in=stats.rx_packets,
        packets_out=stats.tx_packets,
    )
