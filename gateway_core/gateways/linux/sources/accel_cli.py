"""The command line of accel-ppp 1.14, on TCP.

It has neither a prompt nor an end marker, and says nothing to a wrong password. So a connection
carries one command between two `show version`: the version before the reply is the proof of life, and the
version after it proves that the reply is whole. Before its first `reload` with a password, accel-ppp has
none, and takes the password for a command that it does not know.
"""

import math
import re
import secrets
import socket
import threading
import time
from ipaddress import IPv4Address
from pathlib import Path
from typing import NamedTuple

from gateway_contract.base import durable
from gateway_core.gateways.linux.sources.accel_formats import UnreadableReply
from gateway_core.gateways.linux.sources.source import (
    SourceNotRunning,
    SourceRefused,
    SourceUnavailable,
)

#: Seconds for a command, with the connection and the wait for its turn.
TIMEOUT = 10.0
#: A session takes up to 500 bytes.
REPLY_CAP = 128 << 20
_CHUNK = 256 << 10

#: accel-ppp hangs up at a line of 1,023 bytes.
_LINE = re.compile(r"[ -~]{1,1000}")
_PROOF = "show version"
_UNKNOWN = b"command unknown\r\n"
_VERSION = re.compile(rb"[!-~]{1,64}")

#: As an option of the section `[cli]`.
_PASSWORD = re.compile(r"password=([0-9a-f]{64})\n")


class Endpoint(NamedTuple):
    """An address, not a name: on a gateway, there may be no resolver."""

    host: IPv4Address
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class CommandLine:
    """Runs commands, one at a time: accel-ppp queues one connection only. `password` is that of `[cli]`.
    Raises ValueError for a password that is not one line of ASCII."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        password: str | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        if password is not None and not _LINE.fullmatch(password):
            raise ValueError("the password of accel-ppp must be one line of ASCII")
        self._endpoint = endpoint
        self._login = () if password is None else (password,)
        self._timeout = timeout
        self._turn = threading.Lock()

    def run(self, command: str, within: float = math.inf) -> bytes:
        """Return the reply, which may be the text of an error. `within` seconds, if they are fewer than the
        timeout. Raises SourceUnavailable; ValueError for a command that is not one line of ASCII."""
        if not _LINE.fullmatch(command):
            raise ValueError(f"not a command of accel-ppp: {command!r}")
        lines = (*self._login, _PROOF, command, _PROOF, "exit")
        request = "".join(f"{line}\n" for line in lines).encode()
        failed = f"cannot command accel-ppp at {self._endpoint}"
        seconds = min(within, self._timeout)
        deadline = time.monotonic() + seconds
        try:
            if not self._turn.acquire(timeout=seconds):
                raise UnreadableReply("another command took all the time")
            try:
                received = _exchange(self._endpoint, request, deadline)
                return reply_in(received.removeprefix(_UNKNOWN) if self._login else received)
            finally:
                self._turn.release()
        except ConnectionRefusedError as error:
            raise SourceNotRunning(f"{failed}: {error.strerror}") from error
        except TimeoutError as error:
            raise SourceUnavailable(f"{failed}: no reply within {seconds:.3g} s") from error
        except (OSError, UnreadableReply) as error:
            raise SourceUnavailable(f"{failed}: {error}") from error


def kept_password(file: Path) -> str:
    """Return the password in a file that `[cli]` includes. It is made once, for the owner of the file and
    root. Raises SourceRefused."""
    try:
        if file.exists() and (kept := _PASSWORD.fullmatch(file.read_text("latin-1"))):
            return kept[1]
        password = secrets.token_hex(32)
        durable.make_folder(file.parent)
        durable.replace(file, f"password={password}\n".encode())
    except OSError as error:
        raise SourceRefused(f"cannot keep the password of accel-ppp in {file}: {error.strerror}") from error
    return password


def reply_in(received: bytes) -> bytes:
    """Return the reply between two versions. Raises UnreadableReply."""
    if not received:
        raise UnreadableReply("it hung up without a reply, as it does at a wrong password")
    version, _, rest = received.partition(b"\r\n")
    if not _VERSION.fullmatch(version):
        raise UnreadableReply("the reply does not start with a version")
    end = version + b"\r\n"
    if not rest.endswith(end):
        raise UnreadableReply("it hung up in the middle of its reply")
    return rest[: -len(end)]


def _exchange(endpoint: Endpoint, request: bytes, deadline: float) -> bytes:
    """Return all that the peer sends until it hangs up. Raises OSError and UnreadableReply."""

    def until_deadline() -> float:
        if (left := deadline - time.monotonic()) <= 0:
            raise TimeoutError("no reply in time")
        return left

    received = bytearray()
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as peer:
        peer.settimeout(until_deadline())
        peer.connect((str(endpoint.host), endpoint.port))
        peer.settimeout(until_deadline())
        peer.sendall(request)
        while True:
            peer.settimeout(until_deadline())
            data = peer.recv(_CHUNK)
            if not data:
                return bytes(received)
            received += data
            if len(received) > REPLY_CAP:
                raise UnreadableReply(f"a reply of over {REPLY_CAP} bytes")
