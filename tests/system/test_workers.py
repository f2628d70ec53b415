"""Workers that begin and end, and what they inherit of the arbiter, which hosts the hub."""

import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import certifi
import pytest

from gateway_api.hub import service as hub
from gateway_api.hub.sender import HubTlsContext
from tests.support.stack import PATIENCE, children, core_of, running_stack, wait_for


@pytest.fixture
def arbiter(tmp_path: Path) -> Iterator[int]:
    """The process id of an arbiter with one worker."""
    with running_stack(tmp_path / "state", sessions=1, WORKERS=1) as (_, process):
        (arbiter,) = set(children(process.pid)) - {core_of(process)}
        yield arbiter


def test_a_worker_stops_whose_stop_comes_at_its_first_moment(arbiter: int) -> None:
    for _ in range(5):
        (former,) = wait_for("a worker", lambda: children(arbiter))
        os.kill(former, signal.SIGKILL)
        # Without a pause between two looks.
        deadline = time.monotonic() + PATIENCE
        while not (young := [pid for pid in children(arbiter) if pid != former]):
            assert time.monotonic() < deadline
        os.kill(young[0], signal.SIGTERM)
        wait_for("another worker", lambda young=young: set(children(arbiter)) - set(young))


#: Gives a command a resolv.conf of its own.
_RESOLVED_BY = 'mount --bind "$1" "$(realpath /etc/resolv.conf)" && shift && exec "$@"'


def test_a_worker_that_starts_while_the_hub_resolves_a_name_serves(tmp_path: Path) -> None:
    name_server, resolv = "127.53.53.53", tmp_path / "resolv.conf"
    resolv.write_text(f"nameserver {name_server}\noptions timeout:30 attempts:5\n")
    wrap = ("unshare", "--mount", "sh", "-c", _RESOLVED_BY, "sh", str(resolv))
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent,
        running_stack(tmp_path / "state", sessions=1, WORKERS=1, wrap=wrap) as (api, process),
    ):
        silent.bind((name_server, 53))
        silent.settimeout(PATIENCE)
        (arbiter,) = set(children(process.pid)) - {core_of(process)}
        body = {"url": "https://receiver.test/", "events": ["session.up"]}
        made = api.send("POST", "/webhooks", json=body).json()["data"]
        assert api.send("POST", f"/webhooks/{made['id']}/test").ok
        # From now on, a thread of the arbiter waits for this name server.
        assert b"receiver" in silent.recv(512)
        (former,) = children(arbiter)
        os.kill(former, signal.SIGKILL)
        wait_for("another worker", lambda: set(children(arbiter)) - {former})
        api.session.close()
        assert api.get("/subscribers")["count"] == 1


def in_a_process(function: Callable[[], None], **more: Any) -> "subprocess.Popen[bytes]":
    code = f"from tests.system.test_workers import {function.__name__} as run; run()"
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
