"""A varlink peer that misbehaves in one way: `python -m tests.support.faulty_peer SOCKET --mode NAME`.

The socket appears once it listens. With `--count FILE`, a line is added to the file for each call that was
read whole: the call. With `--access SOCKET`, calls about access are passed on to the core there, and
only the others get a bad reply. With `--alone`, a connection whose first call comes alone is served well. It
serves until it is ended by a signal.
"""

import argparse
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

Mode = Callable[[socket.socket, Iterator[bytes]], None]

#: Pause of a trickling peer between two bytes, in seconds.
PAUSE = 0.1

FOREVER = threading.Event()

_ACCESS = re.compile(rb"\.(CheckAccess|GetApiSettings|GetSessionsVersion)\"")


def refuse(connection: socket.socket, calls: Iterator[bytes]) -> None:
    """Accept and hang up at once."""


def cut(connection: socket.socket, calls: Iterator[bytes]) -> None:
    """Hang up after the first bytes of the call."""
    connection.recv(10)


def hangup(connection: socket.socket, calls: Iterator[bytes]) -> None:
    """Read the call and hang up without a reply."""
    next(calls)


def once(connection: socket.socket, calls: Iterator[bytes]) -> None:
    """Reply to one call per connection, read the second and hang up."""
    connection.sendall(_echo(next(calls)))
    next(calls)


def hang(connection: socket.socket, calls: Iterator[bytes]) -> None:
    """Accept, and neither read nor reply."""
    FOREVER.wait()


def half(connection: socket.socket, calls: Iterator[bytes]) -> None:
    """Hang up in the middle of the reply."""
    next(calls)
    connection.sendall(b'{"parameters":{"session":{"id":7,')


def garbage(connection: socket.socket, calls: Iterator[bytes]) -> None:
    """Reply with bytes that are no text."""
    _repeat(connection, calls, bytes(range(255, 127, -1)))


def wrongshape(connection: socket.socket, calls: Iterator[bytes]) -> None:
    """Reply without any expected field."""
    _repeat(connection, calls, b'{"parameters":{"unexpected":1}}')


def invalid(connection: socket.socket, calls: Iterator[bytes]) -> None:
    """Reject the parameters of each call."""
    error = b'{"error":"org.varlink.service.InvalidParameter","parameters":{"parameter":"usernames"}}'
    _repeat(connection, calls, error)


def twice(connection: socket.socket, calls: Iterator[bytes]) -> None:
    """Send two replies to each call at once."""
    _repeat(connection, calls, b'{"parameters":{"answer":1}}\0{"parameters":{"answer":2}}')


def late(connection: socket.socket, calls: Iterator[bytes]) -> None:
    """Reply to each call, and a moment later again."""
    for call in calls:
        connection.sendall(_echo(call))
        time.sleep(PAUSE)
        connection.sendall(b'{"parameters":{"late":true}}\0')


def endless(connection: socket.socket, calls: Iterator[bytes]) -> None:
    """Reply with an endless message."""
    next(calls)
    connection.sendall(b'{"parameters":{"a":"')
    while True:
        connection.sendall(b"x" * (1 << 20))


def trickle(connection: socket.socket, calls: Iterator[bytes]) -> None:
    """Send a valid reply, one byte at a time."""
    for call in calls:
        for byte in _echo(call):
            connection.sendall(bytes([byte]))
            time.sleep(PAUSE)


def last_late(connection: socket.socket, calls: Iterator[bytes]) -> None:
    """Reply to all calls on a connection but the eighth, and never to the eighth."""
    for call, _ in zip(calls, range(7), strict=False):
        connection.sendall(_echo(call))
    FOREVER.wait()


def echo(connection: socket.socket, calls: Iterator[bytes]) -> None:
    """Reply correctly, with the parameters of the call."""
    for call in calls:
        connection.sendall(_echo(call))


def full(connection: socket.socket, calls: Iterator[bytes]) -> None:
    """Never accept, with a full backlog."""
    raise AssertionError("nobody is accepted")


MODES: dict[str, Mode] = {
    mode.__name__: mode
    for mode in (
        refuse, cut, hangup, once, hang, half, garbage, wrongshape, invalid, twice, late, endless, trickle,
        last_late, echo, full,
    )
}  # fmt: skip


def _echo(call: bytes) -> bytes:
    return json.dumps({"parameters": json.loads(call).get("parameters", {})}).encode() + b"\0"


def _repeat(connection: socket.socket, calls: Iterator[bytes], message: bytes) -> None:
    for _ in calls:
        connection.sendall(message + b"\0")


def _calls(connection: socket.socket, count: Path | None) -> Iterator[bytes]:
    held = b""
    while data := connection.recv(1 << 16):
        held += data
        while b"\0" in held:
            call, _, held = held.partition(b"\0")
            if count is not None:
                with count.open("ab") as file:
                    file.write(call + b"\n")
            yield call


def _serve(
    connection: socket.socket, mode: Mode, count: Path | None, access: Path | None, alone: bool
) -> None:
    with connection:
        try:
            if alone and connection.recv(1 << 16, socket.MSG_PEEK).count(b"\0") == 1:
                mode = echo
            calls = _calls(connection, count)
            if access is not None:
                calls = chain([_first_other(connection, calls, access)], calls)
            mode(connection, calls)
        except (OSError, StopIteration):
            pass


def _first_other(connection: socket.socket, calls: Iterator[bytes], access: Path) -> bytes:
    while _ACCESS.search(call := next(calls)):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as core:
            core.connect(str(access))
            core.sendall(call + b"\0")
            while not (data := core.recv(1 << 16)).endswith(b"\0"):
                connection.sendall(data)
            connection.sendall(data)
    return call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("socket", type=Path)
    parser.add_argument("--mode", choices=MODES, required=True)
    parser.add_argument("--count", type=Path, help="gets a line for each call read")
    parser.add_argument("--access", type=Path, help="a core that is asked about access")
    parser.add_argument("--alone", action="store_true", help="serve a call that comes alone well")
    arguments = parser.parse_args()
    arguments.socket.unlink(missing_ok=True)
    unready = arguments.socket.with_suffix(".new")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(unready))
        if arguments.mode == "full":
            listener.listen(0)
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as filler:
                filler.connect(str(unready))
                unready.rename(arguments.socket)
                FOREVER.wait()
        listener.listen(128)
        unready.rename(arguments.socket)
        while True:
            connection, _ = listener.accept()
            mode = MODES[arguments.mode]
            served = (connection, mode, arguments.count, arguments.access, arguments.alone)
            threading.Thread(target=_serve, args=served, daemon=True).start()


if __name__ == "__main__":
    main()
