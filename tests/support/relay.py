"""A relay between an API and its core, which can lose the reply to a call."""

import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: Gets the connection to the core, and the bytes of the call, which it may send or not.
Fault = Callable[[socket.socket, bytes], object]


class Relay:
    """Listens at `path`, and passes each connection on to the core at `core`."""

    def __init__(self, path: Path, core: Path) -> None:
        self._core = core
        self._faults: dict[bytes, Fault] = {}
        self._open: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_reply(self, method: str, fault: Fault) -> None:
        """Closes the connection of the next call of this method after `fault`, without a reply."""
        self._faults[f'.{method}"'.encode()] = fault

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for each in (self._listener, *self._open):
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._open.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        core = socket.socket(socket.AF_UNIX)
        # It stays open: a core that was stopped may read the call later.
        self._open.append(core)
        with suppress(OSError):
            core.connect(str(self._core))
            while self._pass_on(client, core):
                pass
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)

    def _pass_on(self, client: socket.socket, core: socket.socket) -> bool:
        """Waits for data of either side. False at the end of a connection."""
        for source in select.select([client, core], [], [])[0]:
            data = source.recv(1 << 20)
            fault = next((self._faults.pop(name) for name in [*self._faults] if name in data), None)
            if fault is not None:
                fault(core, data)
            if fault is not None or not data:
                return False
            (core if source is client else client).sendall(data)
        return True


@contextmanager
def relayed(path: Path, core: Path) -> Iterator[Relay]:
    relay = Relay(path, core)
    try:
        yield relay
    finally:
        relay.close()
