"""The interfaces of accel-ppp's IPoE: a file that the section `[ipoe]` of its configuration includes, by the
last line of the section and of the whole: `$include FILE`.

A name in the file is served until it leaves the file: accel-ppp keeps its sockets when the interface is
removed, and they do not work when it is created again. An expression (`interface=re:`) would never let a name
go. Behaviour of accel-ppp 1.14.
"""

import threading
from collections.abc import Callable
from pathlib import Path

from gateway_api.base import durable
from gateway_api.base.errors import GatewayApiError
from gateway_api.core.gateways.linux.sources.accel_formats import is_interface
from gateway_api.core.gateways.linux.sources.devices import is_device
from gateway_api.core.gateways.linux.sources.gathered import Gathered
from gateway_api.core.gateways.linux.sources.source import SourceRefused

#: Seconds in which a `reload` waits for further interfaces: accel-ppp reads its whole configuration. A DHCP
#: client repeats its DISCOVER after about four (RFC 2131 section 4.1).
_PAUSE = 1.0

_OPTION = "interface="


class IpoeInterfaces:
    """The interfaces in the `file`, which outlives this process and accel-ppp. `reload` makes accel-ppp read
    it: on a thread, once for many changes, again after an error, which is logged. It raises
    GatewayApiError. The file and its folder are created if they are missing. Raises SourceRefused if that
    cannot be done."""

    def __init__(self, file: Path, reload: Callable[[], None]) -> None:
        self._file = file
        self._reload = reload
        self._lock = threading.Lock()
        self._served = _read(file)
        #: Names that accel-ppp may have sockets for, although their interface is or was gone.
        self._stale: set[str] = {name for name in self._served if not is_device(name)}
        self._served -= self._stale
        self._write(self._served)
        self._changes = Gathered(self._apply, _PAUSE)

    def serve(self, interface: str) -> None:
        with self._lock:
            self._served.add(interface)
        self._changes.request()

    def release(self, interface: str) -> None:
        """Does nothing for an interface that is not in the file."""
        with self._lock:
            if interface not in self._served:
                return
            self._served.remove(interface)
            self._stale.add(interface)
        self._changes.request()

    def close(self) -> None:
        self._changes.close()

    def _apply(self) -> None:
        with self._lock:
            # One that is made again meanwhile is stale again, for the next run.
            served, stale, self._stale = self._served.copy(), self._stale, set()
        try:
            if served & stale:
                # Only a reload without a name closes its sockets.
                self._write(served - stale)
                self._reload()
            self._write(served)
            self._reload()
        except GatewayApiError:
            with self._lock:
                self._stale |= stale
            raise

    def _write(self, names: set[str]) -> None:
        text = "".join(f"{_OPTION}{name}\n" for name in sorted(names))
        try:
            # At the first start of the core, no commit has made it.
            durable.make_folder(self._file.parent)
            durable.replace(self._file, text.encode())
        except OSError as error:
            raise SourceRefused(f"cannot write {self._file}: {error}") from error


def _read(file: Path) -> set[str]:
    try:
        lines = file.read_text().splitlines()
    except FileNotFoundError:
        return set()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceRefused(f"cannot read {file}: {error}") from error
    names = {line.removeprefix(_OPTION) for line in lines if line.startswith(_OPTION)}
    return {name for name in names if is_interface(name)}
