"""A thread that hears the first frames of subscribers on a trunk, with a packet socket (packet(7))."""

import errno
import logging
import os
import select
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Self

from gateway_api.core.gateways.linux.demux.frames import (
    AUXDATA_SIZE,
    LONGEST_FRAME,
    Trigger,
    attach_filter,
    parse,
)
from gateway_api.core.gateways.linux.threads import Crew

#: Frames in one batch, and the seconds of rest after a full one: a flood gets no more of the processor.
_AT_ONCE = 256
_REST = 0.01
#: The kernel takes twice as much, and at most, for a burst of 10,000 to 20,000 frames on a trunk.
_BUFFER = 8 << 20
#: Seconds until a trunk that is missing or down is tried again.
_RETRY = 1.0

# linux/if_packet.h and linux/if_ether.h, which Python lacks.
_ETH_P_ALL = 3
_SOL_PACKET = 263
_PACKET_ADD_MEMBERSHIP, _PACKET_STATISTICS, _PACKET_AUXDATA, _PACKET_IGNORE_OUTGOING = 1, 6, 8, 23
_PACKET_MR_PROMISC = 1
_MEMBERSHIP = struct.Struct("@iHH8x")
_STATISTICS = struct.Struct("@II")
_SO_RCVBUFFORCE = 33
_ANCILLARY = socket.CMSG_SPACE(AUXDATA_SIZE)

_log = logging.getLogger(__name__)


class _Lost(Exception):
    """A trunk that is missing or down, or may not be listened to. The text is the reason."""

    @classmethod
    def by(cls, error: OSError) -> Self:
        return cls(os.strerror(error.errno or errno.EIO))


class Listener:
    """Listens on a trunk from now on until `stop`. A trunk that goes away, or down, is picked up again.

    Its thread, one of the `crew`, calls `heard` with the triggers of a batch, and how many frames the kernel
    dropped since the last one; `changed` with the trunk's name when it went or came.
    """

    def __init__(
        self,
        trunk: str,
        heard: Callable[[list[Trigger], int], None],
        changed: Callable[[str], None],
        crew: Crew,
    ) -> None:
        self._trunk = trunk
        self._heard = heard
        self._changed = changed
        self._stop = os.eventfd(0, os.EFD_CLOEXEC)
        self._stopped = select.poll()
        self._stopped.register(self._stop, select.POLLIN)
        self._thread = crew.start(self._listen, f"demux {trunk}")

    def stop(self) -> None:
        """Ends the thread, and waits for it."""
        os.eventfd_write(self._stop, 1)
        self._thread.join()
        os.close(self._stop)

    def _listen(self) -> None:
        reported = ""
        while True:
            try:
                with closing(_opened(self._trunk)) as packets:
                    if reported:
                        _log.info("receiving on trunk %s", self._trunk)
                        reported = ""
                        self._changed(self._trunk)
                    self._receive(packets)
                    return
            except _Lost as lost:
                if str(lost) != reported:
                    reported = str(lost)
                    _log.warning("cannot receive on trunk %s: %s", self._trunk, reported)
                    self._changed(self._trunk)
            if self._is_stopped(_RETRY):
                return

    def _receive(self, packets: socket.socket) -> None:
        """Returns at `stop`. Raises _Lost."""
        ready = select.poll()
        ready.register(packets, select.POLLIN)
        ready.register(self._stop, select.POLLIN)
        rest = 0.0
        while not self._is_stopped(rest):
            ready.poll()
            batch = list(self._batch(packets))
            triggers = [trigger for trigger in batch if trigger is not None]
            # The kernel counts from zero again after each read.
            _, dropped = _STATISTICS.unpack(
                packets.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, _STATISTICS.size)
            )
            if triggers or dropped:
                self._heard(triggers, dropped)
            rest = _REST if len(batch) == _AT_ONCE else 0.0

    def _batch(self, packets: socket.socket) -> Iterator[Trigger | None]:
        for _ in range(_AT_ONCE):
            try:
                frame, ancillary, _, _ = packets.recvmsg(LONGEST_FRAME, _ANCILLARY)
            except BlockingIOError:
                return
            except OSError as error:
                raise _Lost.by(error) from error
            for level, kind, auxdata in ancillary:
                if (level, kind) == (_SOL_PACKET, _PACKET_AUXDATA):
                    yield parse(self._trunk, frame, auxdata)

    def _is_stopped(self, timeout: float) -> bool:
        """True after `stop`, or when it comes within so many seconds."""
        return bool(self._stopped.poll(timeout * 1000))


def _opened(trunk: str) -> socket.socket:
    """A packet socket that receives the first frames on a trunk. Raises _Lost."""
    try:
        packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    except OSError as error:
        raise _Lost.by(error) from error
    try:
        # All before the bind: protocol 0 receives nothing, so no frame comes past the filter.
        attach_filter(packets)
        packets.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
        # Without it, the kernel would copy each packet to a subscriber for this socket.
        packets.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        packets.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
        packets.bind((trunk, _ETH_P_ALL))
        # A network card may drop VLANs without a device, and groups that nobody joined.
        membership = _MEMBERSHIP.pack(socket.if_nametoindex(trunk), _PACKET_MR_PROMISC, 0)
        packets.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, membership)
        if down := packets.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(down, os.strerror(down))
    except OSError as error:
        packets.close()
        raise _Lost.by(error) from error
    return packets
