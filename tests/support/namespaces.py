"""Network namespaces of tests: whatever a test makes in one goes with it."""

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NEW_NETWORK = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def _for_a_while() -> Iterator[None]:
    """The calling thread is back in its network after the block."""
    with Path("/proc/thread-self/ns/net").open("rb") as home:
        try:
            yield
        finally:
            _check(_libc.setns(home.fileno(), _NEW_NETWORK))


@contextmanager
def network_namespace() -> Iterator[None]:
    """The calling thread, and the threads and processes it starts, in a new network namespace."""
    with _for_a_while():
        _check(_libc.unshare(_NEW_NETWORK))
        ip("link set lo up")
        yield


@contextmanager
def neighbour() -> Iterator[int]:
    """The pid of a process with a network namespace of its own, to move devices to."""
    script = "ip link set lo up; echo; exec sleep infinity"
    with unshared("--net", "sh", "-c", script) as pid:
        yield pid


@contextmanager
def unshared(*arguments: str) -> Iterator[int]:
    """The pid of a program in namespaces of its own, by the arguments of unshare(1). It says that it is ready
    by an empty line."""
    process = subprocess.Popen(["unshare", *arguments], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"\n"
        yield process.pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextmanager
def network_of(pid: int) -> Iterator[None]:
    """The calling thread in the network namespace of a process. A socket that it makes stays there."""
    with _for_a_while(), Path(f"/proc/{pid}/ns/net").open("rb") as there:
        _check(_libc.setns(there.fileno(), _NEW_NETWORK))
        yield


def ip(*commands: str) -> None:
    """Runs `ip` commands."""
    for command in commands:
        subprocess.run(["ip", *command.split()], check=True)


def ip_batch(commands: list[str]) -> None:
    subprocess.run(["ip", "-batch", "-"], input="\n".join(commands), text=True, check=True)


def tc_batch(commands: list[str]) -> None:
    subprocess.run(["tc", "-batch", "-"], input="\n".join(commands), text=True, check=True)


def tc(*commands: str) -> None:
    """Runs `tc` commands."""
    for command in commands:
        subprocess.run(["tc", *command.split()], check=True)


def inside(pid: int, *command: str) -> list[str]:
    """The command in the namespace of a process."""
    return ["nsenter", f"--net=/proc/{pid}/ns/net", *command]


def can(*commands: str) -> bool:
    """True when the kernel carries out all commands, in a namespace that is gone afterwards. Debian's kernel
    can all that the gateway uses; smaller ones lack devices and qdiscs."""
    script = " && ".join(commands)
    done = subprocess.run(["unshare", "--net", "sh", "-c", script], capture_output=True, check=False)
    return os.geteuid() == 0 and done.returncode == 0


def _check(result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
