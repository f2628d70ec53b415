"""What a worker inherits of the arbiter, which hosts the hub."""

import json
import os
import socket
import ssl
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import certifi

from gateway_api.hub import service as hub
from gateway_api.hub.sender import HubTlsContext


def in_a_process(function: Callable[[], None], **more: Any) -> "subprocess.Popen[bytes]":
    code = f"from tests.system.test_forked_worker import {function.__name__} as run; run()"
    return subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[2], **more)


def fork_a_child() -> None:
    """Forks a process that holds all kinds of sockets; prints what became of them."""
    listener = socket.create_server(("127.0.0.1", 0))
    outgoing = socket.create_connection(listener.getsockname())
    incoming, _ = listener.accept()
    ours, others = socket.socketpair()
    peer = os.dup(others.fileno())
    report, reported = os.pipe()
    over, ends = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(ends)
            hub.give_up_sockets([listener.fileno()])
            told: dict[str, Any] = {"sockets": _sockets() == [listener.fileno()]}
            told["inherited"] = [one.fileno() for one in (outgoing, incoming, ours) if one.get_inheritable()]
            # Whatever numbers are free are somebody else's from now on.
            new = [os.open(__file__, os.O_RDONLY) for _ in range(20)]
            for one in (outgoing, incoming, ours, others):
                one.close()
            told["lost"] = [descriptor for descriptor in new if not _is_open(descriptor)]
            os.write(reported, json.dumps(told).encode())
            # Lives until its parent has looked, or has ended.
            os.read(over, 1)
        finally:
            os._exit(0)
    os.close(reported)
    others.close()
    told = json.loads(os.read(report, 1 << 16))
    listener.close()
    ours.close()
    with socket.socket(fileno=peer) as receiver:
        receiver.settimeout(10)
        told["peer"] = receiver.recv(1).decode()
    os.close(ends)
    os.waitpid(pid, 0)
    sys.stdout.write(json.dumps(told))


def _sockets() -> list[int]:
    found = [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]
    return [number for number in found if _is_open(number) and stat.S_ISSOCK(os.fstat(number).st_mode)]


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def test_a_forked_child_gives_up_all_sockets_but_those_that_are_kept() -> None:
    with in_a_process(fork_a_child, stdout=subprocess.PIPE) as process:
        said, _ = process.communicate(timeout=60)
    # The peer of a socket sees its end, and what the child opens later stays open.
    assert json.loads(said) == {"sockets": True, "inherited": [], "lost": [], "peer": ""}


def forget_and_speak() -> None:
    """In a process whose output is a socket."""
    hub.give_up_sockets([])
    sys.stdout.write("still heard")


def test_a_process_that_speaks_to_a_socket_is_heard_after_it_gave_up_its_sockets() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            process = in_a_process(forget_and_speak, stdout=theirs)
        assert process.wait(60) == 0
        ours.settimeout(5)
        assert ours.recv(100) == b"still heard"


def test_a_fork_waits_until_a_thread_has_read_its_certificates(tmp_path: Path) -> None:
    """The child inherits no lock of OpenSSL."""
    pipe = tmp_path / "certificates.pem"
    os.mkfifo(pipe)
    order = []

    def load() -> None:
        HubTlsContext.make().load_verify_locations(str(pipe))

    def fork() -> None:
        pid = os.fork()
        if pid == 0:
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            finally:
                os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        order.append("forked")

    loading, forking = threading.Thread(target=load), threading.Thread(target=fork)
    loading.start()
    # This returns when OpenSSL reads at the other end.
    with pipe.open("wb") as written:
        forking.start()
        forking.join(1)
        order.append("read")
        written.write(Path(certifi.where()).read_bytes())
    loading.join()
    forking.join()
    assert order == ["read", "forked"]
