"""A stand-in for accel-ppp 1.14: its command line, with the faults of the real one.

`python -m tests.support.accel PORT [PASSWORD_FILE]` reads JSON objects from stdin, one a
line, changes its world, and confirms each with a line on stdout. It reads the file, which
`[cli]` includes, at its start and at each `reload`. `running_accel` starts it for a test. Bytes of user names
are the characters U+0000 to U+00FF.
"""

import json
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VERSION = "1.14.0-152-g89637ee2"
#: Bytes of a cell, and of a line that the command line reads.
_CELL, _LINE = 127, 1023
#: Seconds from a request to end a session to its end.
_ENDING = 0.1
_COLUMNS = frozenset({
    "netns", "vrf", "ifname", "username", "ip", "ip6", "ip6-dp", "type", "state", "uptime", "uptime-raw",
    "calling-sid", "called-sid", "sid", "comp", "rx-bytes", "tx-bytes", "rx-bytes-raw", "tx-bytes-raw",
    "rx-pkts", "tx-pkts", "inbound-if", "service-name",
})  # fmt: skip


@dataclass
class Peer:
    """A session of the stand-in. The state is starting, active or finishing."""

    sid: str
    username: str = "alice"
    ifname: str = "ppp0"
    inbound: str = "trunk0.100"
    calling: str = "02:00:00:00:00:06"
    type: str = "pppoe"
    state: str = "active"
    ip: str = "100.64.0.10"
    ip6: str = ""
    delegated: str = ""
    rate: str = ""
    #: Seconds that the session was up at its first moment here.
    uptime: int = 0
    born: float = field(default_factory=time.monotonic)
    gone: float = float("inf")

    def row(self, columns: Sequence[str], age: int) -> list[bytes]:
        """Return the cells of the session's row. `age` is the uptime in seconds."""
        states = {"starting": "start", "finishing": "finish"}
        cells = {
            "netns": "def", "ifname": self.ifname, "username": self.username, "ip": self.ip or self.ip6,
            "ip6": self.ip6, "ip6-dp": self.delegated, "type": self.type, "sid": self.sid,
            "state": states.get(self.state, self.state), "uptime-raw": str(age),
            "uptime": time.strftime("%H:%M:%S", time.gmtime(age)), "rate-limit": self.rate,
            "calling-sid": self.calling, "called-sid": self.inbound, "inbound-if": self.inbound,
        }  # fmt: skip
        return [cells.get(column, "").encode("latin-1")[:_CELL] for column in columns]


@dataclass
class Faults:
    """How the stand-in differs from a healthy daemon with all modules."""

    password: str | None = None
    #: The module that brings the column `rate-limit`.
    shaper: bool = True
    #: None, `hang`, `drip`, or the number of bytes after which the command line hangs up.
    cli: str | int | None = None
    #: No uptime grows.
    still: bool = False
    #: `terminate` does nothing, as silently as always.
    deaf: bool = False
    #: What `reload` and `restart hard` say.
    reload: str = ""
    restart: str = ""
    #: `restart hard` does nothing, as silently as always.
    lasting: bool = False
    #: The file that `[ipoe]` includes.
    ipoe: str | None = None
    #: Interfaces that exist; None for any.
    links: list[str] | None = None
    #: The server of the module `radius`: whether it is failed, and requests sent, lost, lost in five minutes.
    radius: tuple[bool, int, int, int] | None = None


class World:
    """Sessions, faults, and what was requested."""

    def __init__(self, password_file: Path | None = None) -> None:
        self.faults = Faults()
        self._password_file = password_file
        self._password: str | None = None
        self._read_password()
        self.commands: list[str] = []
        # Long ago.
        self.started = time.monotonic() - 60
        self.interfaces: set[str] = set()
        #: The interfaces of IPoE at each `reload`.
        self.reloads: list[list[str]] = []
        self._peers: dict[str, Peer] = {}
        self._lock = threading.Lock()

    def change(self, order: dict[str, Any]) -> Any:
        if "restart" in order:
            self.restart()
        with self._lock:
            if "reset" in order:
                self.faults, self.commands, self.interfaces = Faults(), [], set()
                self.reloads, self._peers = [], {}
            for peer in order.get("up", ()):
                self._peers[peer["sid"]] = Peer(**peer)
            for sid in order.get("down", ()):
                del self._peers[sid]
            for name, value in order.get("faults", {}).items():
                setattr(self.faults, name, value)
            return {"commands": self.commands, "interfaces": sorted(self.interfaces), "reloads": self.reloads}

    def peers(self) -> list[Peer]:
        with self._lock:
            now = time.monotonic()
            self._peers = {sid: peer for sid, peer in self._peers.items() if peer.gone > now}
            return list(self._peers.values())

    @property
    def password(self) -> str | None:
        """Password of the command line, for connections from now on."""
        return self.faults.password or self._password

    def command(self, line: str) -> bytes:
        """Return the reply of accel-ppp to a command line."""
        self.commands.append(line)
        match line.split():
            case ["show", "version"]:
                return f"{VERSION}\r\n".encode()
            case ["show", "stat"]:
                return stat(self.faults.radius, int(time.monotonic() - self.started))
            case ["show", "sessions", columns]:
                return self._table(columns.split(","))
            case ["terminate", "sid", sid, ("soft" | "hard")]:
                for peer in self.peers():
                    if peer.sid == sid and not self.faults.deaf:
                        peer.state = "finishing"
                        peer.gone = time.monotonic() + _ENDING
                return b""
            case ["pppoe", "interface", "add", added]:
                name, _, limit = added.partition(",")
                if limit and not re.fullmatch("padi-limit=[0-9]+", limit):
                    return f"failed to parse '{added}'\r\n".encode()
                if name in self.interfaces:
                    return b"error: already exists\r\n"
                if self.faults.links is not None and name not in self.faults.links:
                    return f"{name}: No such device\r\n".encode()
                self.interfaces.add(name)
                return b""
            case ["pppoe", "interface", "del", name]:
                self.interfaces.discard(name)
                return b""
            case ["restart", "hard"]:
                if not self.faults.restart and not self.faults.lasting:
                    self.restart()
                return self.faults.restart.encode()
            case ["reload"]:
                if self.faults.ipoe:
                    lines = Path(self.faults.ipoe).read_text().splitlines()
                    self.reloads.append([line.removeprefix("interface=") for line in lines])
                self._read_password()
                return self.faults.reload.encode()
            case ["show", "sessions", *_] | ["terminate", *_] | ["reload", *_]:
                return b"syntax error\r\n"
        return b"command unknown\r\n"

    def restart(self) -> None:
        with self._lock:
            self._peers, self.started = {}, time.monotonic()
        self._read_password()

    def _read_password(self) -> None:
        if self._password_file is not None and self._password_file.exists():
            self._password = self._password_file.read_text().strip().removeprefix("password=")

    def _age(self, peer: Peer) -> int:
        return peer.uptime if self.faults.still else peer.uptime + int(time.monotonic() - peer.born)

    def _table(self, columns: list[str]) -> bytes:
        known = _COLUMNS | {"rate-limit"} if self.faults.shaper else _COLUMNS
        for column in columns:
            if column not in known:
                return f"unknown column {column}\r\n".encode()
        return table(columns, [peer.row(columns, self._age(peer)) for peer in self.peers()])


def table(columns: list[str], rows: list[list[bytes]]) -> bytes:
    """Return a table of accel-ppp: each column as wide as its widest cell, names in the middle."""
    widths = [
        max(len(name), *(len(row[place]) for row in rows)) if rows else len(name)
        for place, name in enumerate(columns)
    ]
    names = []
    for name, width in zip(columns, widths, strict=True):
        left = width // 2 - len(name) // 2 if width > len(name) + 1 else 0
        names.append((" " * left + name).ljust(width).encode())
    lines = [b" " + b" | ".join(names) + b" ", b"+".join(b"-" * (width + 2) for width in widths)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append(b" " + b" | ".join(cells) + b" ")
    return b"".join(line + b"\r\n" for line in lines)


def stat(radius: tuple[bool, int, int, int] | None, uptime: int = 6) -> bytes:
    """Return the output of `show stat`, with authentication requests alone. `uptime` is in seconds."""
    lines = [
        f"uptime: 0.00:{uptime // 60:02}:{uptime % 60:02}",
        "cpu: 0%",
        "sessions:",
        "  starting: 0",
        "  active: 3",
    ]
    if radius is not None:
        failed, sent, lost, lately = radius
        lines += ["radius(1, 192.0.2.1):", f"  state: {'failed' if failed else 'active'}", "  fail count: 0"]
        lines += ["  request count: 0", "  queue length: 0", f"  auth sent: {sent}"]
        lines += [f"  auth lost(total/5m/1m): {lost}/{lately}/0", "  auth avg query time(5m/1m): 0/0 ms"]
    return "".join(f"{line}\r\n" for line in lines).encode()


def _converse(world: World, peer: socket.socket) -> None:
    with peer, suppress(OSError):
        reply, password = b"", world.password
        trusted = password is None
        for line in _lines(peer):
            if not trusted:
                if line != password:
                    return
                trusted = True
            elif line == "exit":
                _send(peer, reply, world.faults.cli)
                return
            else:
                reply += world.command(line)


def _accept(world: World, listener: socket.socket) -> None:
    while True:
        peer, _ = listener.accept()
        threading.Thread(target=_converse, args=(world, peer), daemon=True).start()


def _main() -> None:
    port, *files = sys.argv[1:]
    world = World(Path(files[0]) if files else None)
    listener = socket.create_server(("127.0.0.1", int(port)), backlog=1)
    threading.Thread(target=_accept, args=(world, listener), daemon=True).start()
    print("{}", flush=True)
    for line in sys.stdin:
        print(json.dumps(world.change(json.loads(line))), flush=True)


def _send(peer: socket.socket, reply: bytes, fault: str | int | None) -> None:
    if fault == "hang":
        threading.Event().wait()
    if fault == "drip":
        for place in range(len(reply)):
            peer.sendall(reply[place : place + 1])
            time.sleep(0.05)
    peer.sendall(reply[:fault] if isinstance(fault, int) else reply)


def _lines(peer: socket.socket) -> Iterator[str]:
    held = b""
    while data := peer.recv(_LINE - len(held)):
        *lines, held = (held + data).split(b"\n")
        yield from (line.decode("latin-1") for line in lines)
        if len(held) == _LINE:
            return


if __name__ == "__main__":
    _main()
