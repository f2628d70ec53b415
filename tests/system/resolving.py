"""`python -m tests.system.resolving`, in its own network and mount namespaces: attempts to deliver
to names that a DNS server of ours resolves as it likes. Prints what came of each, as JSON.

No part of the service is replaced: the C library reads the files that are mounted over the machine's, and
asks the server that listens where they say.
"""

import json
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from ipaddress import ip_address
from pathlib import Path

from gateway_api.hub.sender import AttemptResult, Sender, WebhookMessage
from gateway_contract.base.receivers import check_url

PORT = 8080
METADATA = "169.254.169.254"
#: Addresses of this namespace with a listener.
_OURS = ("127.0.0.1", METADATA, "10.9.9.9", "10.9.9.10", "fd00:9::9")
_NAME_SERVERS = ("127.0.0.1", "127.0.0.3")
#: The responses to the first query for a name, the second and so on; the last one repeats.
NAMES: dict[str, list[list[str]]] = {
    "loopback.test": [["127.0.0.1"]],
    "private.test": [["10.9.9.9"]],
    "private6.test": [["fd00:9::9"]],
    "metadata.test": [[METADATA]],
    "mapped.test": [[f"::ffff:{METADATA}"]],
    "unspecified.test": [["0.0.0.0"]],
    "unspecified6.test": [["::"]],
    "mapped-unspecified.test": [["::ffff:0.0.0.0"]],
    "group.test": [["224.0.0.1"]],
    "broadcast.test": [["255.255.255.255"]],
    "turncoat.test": [["127.0.0.1"], [METADATA]],
    "repentant.test": [[METADATA], ["127.0.0.1"]],
    "denied-later.test": [["10.9.9.10"]],
    "second-chance.test": [["127.0.0.2", "127.0.0.1"]],
    "metadata-second.test": [["127.0.0.2", METADATA]],
    "nobody.test": [[]],
}
#: The server does not respond for this name.
SILENCE = "silence.test"


class Dns:
    """Responds to A and AAAA queries from NAMES (RFC 1035), and counts each type separately."""

    def __init__(self, address: str) -> None:
        self._asked = Counter[tuple[str, int]]()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((address, 53))

    def run(self) -> None:
        while True:
            question, client = self._socket.recvfrom(512)
            if reply := self._reply(question):
                self._socket.sendto(reply, client)

    def _reply(self, question: bytes) -> bytes:
        labels, at = [], 12
        while length := question[at]:
            labels.append(question[at + 1 : at + 1 + length].decode())
            at += 1 + length
        name, kind = ".".join(labels).lower(), int.from_bytes(question[at + 1 : at + 3])
        if name == SILENCE:
            return b""
        known = NAMES.get(name)
        self._asked[name, kind] += 1
        found = known[min(self._asked[name, kind], len(known)) - 1] if known else []
        wanted = [each.packed for each in map(ip_address, found) if {4: 1, 6: 28}[each.version] == kind]
        head = struct.pack("!HHHHH", 0x8180 if known else 0x8183, 1, len(wanted), 0, 0)
        records = (struct.pack("!HHHIH", 0xC00C, kind, 1, 0, len(data)) + data for data in wanted)
        return question[:2] + head + question[12 : at + 5] + b"".join(records)


class Listener:
    """A receiver at one address, which counts its connections."""

    def __init__(self, address: str) -> None:
        self.reached = 0
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.create_server((address, PORT), family=family)

    def run(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            self.reached += 1
            with connection:
                connection.recv(65536)
                # The next attempt must connect again, and so resolve the name again.
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


def _sender(name: str, denied: list[str]) -> Sender:
    url = f"http://{name}:{PORT}/hook"
    # As at a registration, which does not resolve names.
    check_url(url)
    return Sender(url, None, lambda: denied, None)


def _send(sender: Sender) -> dict[str, object]:
    outcome: AttemptResult = sender.send(WebhookMessage("life-1", "session.up", b"{}"))
    return {"status": outcome.status, "error": outcome.error, "seconds": outcome.seconds}


def _watched(name: str) -> dict[str, object]:
    """An attempt with the deadline of the hub's watch."""
    sender, done = _sender(name, []), threading.Event()

    def watch() -> None:
        while not done.wait(0.25):
            sender.cut(time.monotonic())

    with closing(sender), ThreadPoolExecutor(1) as pool:
        pool.submit(watch)
        try:
            return _send(sender)
        finally:
            done.set()


def _prepare(folder: Path) -> None:
    # Without a check for duplicates, an IPv6 address would be tentative for a second.
    commands = ["ip link set lo up", *(f"ip address add {address} dev lo" for address in _OURS[1:-1])]
    # Mounts of this namespace must stay in it.
    commands += [f"ip address add {_OURS[-1]} dev lo nodad", "mount --make-rprivate /"]
    for name, text in {
        "resolv.conf": "".join(f"nameserver {address}\n" for address in _NAME_SERVERS),
        "hosts": f"127.0.0.1 localhost\n{METADATA} hosts-file.test\n",
        "nsswitch.conf": "hosts: files dns\n",
        # Without the sort order of RFC 3484: tests need a known first address.
        "gai.conf": "sortv4 no\n",
    }.items():
        (folder / name).write_text(text)
        place = Path("/etc") / name
        if place.exists():
            commands.append(f"mount --bind {folder / name} {place.resolve()}")
    for command in commands:
        subprocess.run(command.split(), check=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        _prepare(Path(folder))
        for address in _NAME_SERVERS:
            threading.Thread(target=Dns(address).run, daemon=True).start()
        listeners = {address: Listener(address) for address in _OURS}
        for listener in listeners.values():
            threading.Thread(target=listener.run, daemon=True).start()
        with ThreadPoolExecutor() as pool:
            slow = pool.submit(_watched, SILENCE)
            results = {}
            for name in (*NAMES, "hosts-file.test", "unknown.test"):
                denied: list[str] = []
                with closing(_sender(name, denied)) as sender:
                    first = _send(sender)
                    if name == "denied-later.test":
                        denied.append("10.9.9.10/32")
                    results[name] = [first, _send(sender)]
            results[SILENCE] = [slow.result()]
    reached = {address: listener.reached for address, listener in listeners.items()}
    json.dump({"results": results, "reached": reached}, sys.stdout)


if __name__ == "__main__":
    main()
