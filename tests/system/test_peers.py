"""Both ends of the varlink socket look at who the other is, and talk to no stranger."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gateway_contract.varlink.client import Client, Unreachable
from gateway_contract.varlink.dispatcher import Dispatcher, Identity
from gateway_contract.varlink.server import Server
from tests.support.stack import wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="takes root, to become others")

NOBODY = 65534
#: User, group and other groups of processes.
STRANGER = (NOBODY, NOBODY, NOBODY)
MEMBER = (NOBODY, os.getegid(), NOBODY)
MEMBER_BESIDES = (NOBODY, NOBODY, os.getegid())
ROOT = (0, NOBODY, NOBODY)

#: Somebody else, once all is imported that only root may read.
_BECOME = """
import os, socket, sys
from pathlib import Path
from gateway_contract.varlink.client import Client
path, user, group, other = sys.argv[1], *map(int, sys.argv[2:])
os.setgroups([other])
os.setresgid(group, group, group)
os.setresuid(user, user, user)
"""
_CALL = """
print(bytes(Client(Path(path), timeout=5).call("org.varlink.service.GetInfo")).decode())
"""
_SERVE = """
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
os.chmod(path, 0o666)
listener.listen()
print("listens", flush=True)
while True:
    connection, _ = listener.accept()
    connection.recv(1000)
    connection.sendall(b'{"parameters":{}}\\0')
    connection.close()
"""


@pytest.fixture
def path() -> Iterator[Path]:
    """Of a socket that anybody can reach, as far as files go."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder) / "socket"


@contextmanager
def served(path: Path) -> Iterator[None]:
    """By ourselves."""
    server = Server(path, Dispatcher(Identity("somebody", "test", "1", "https://example.org"), []))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    path.chmod(0o666)
    try:
        yield
    finally:
        server.close()
        thread.join(10)


def called_by(who: tuple[int, int, int], path: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", _BECOME + _CALL, str(path), *map(str, who)]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


@contextmanager
def served_by(who: tuple[int, int, int], path: Path) -> Iterator[None]:
    command = [sys.executable, "-c", _BECOME + _SERVE, str(path), *map(str, who)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert wait_for("the server", process.stdout.readline, 10) == "listens\n"
            yield
        finally:
            process.kill()


@pytest.mark.parametrize(
    "who",
    [ROOT, MEMBER, MEMBER_BESIDES],
    ids=["root", "a member of its group", "a member of its group besides its own"],
)
def test_a_server_answers(who: tuple[int, int, int], path: Path) -> None:
    with served(path):
        answered = called_by(who, path)
    assert '"vendor":"somebody"' in answered.stdout, answered.stderr


def test_a_server_hangs_up_on_a_stranger_and_says_on_whom(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with served(path):
        refused = called_by(STRANGER, path)
        wait_for("the log", lambda: f"user {NOBODY} and group {NOBODY}" in caplog.text)
    assert refused.returncode == 1
    # Before or after the call was sent.
    assert "cannot call org.varlink.service.GetInfo" in refused.stderr


@pytest.mark.parametrize("who", [ROOT, MEMBER], ids=["root", "a member of its group"])
def test_a_client_calls_the_server_of(who: tuple[int, int, int], path: Path) -> None:
    with served_by(who, path), closing(Client(path, timeout=5)) as client:
        assert bytes(client.call("org.example.Anything")) == b"{}"


def test_a_client_neither_calls_nor_follows_the_server_of_a_stranger(path: Path) -> None:
    refusal = pytest.raises(Unreachable, match=f"user {NOBODY} and group {NOBODY}")
    with served_by(STRANGER, path):
        with refusal:
            Client(path, timeout=5).call("org.example.Anything")
        with refusal:
            next(Client(path, timeout=5).stream("org.example.Anything", {}, silence=5))
