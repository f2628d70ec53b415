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
    """Move the calling thread back to its network after the block."""
    with Path("/proc/thread-self/ns/net").open("rb") as home:
        try:
            yield
        finally:
            _check(_libc.setns(home.fileno(), _NEW_NETWORK))


@contextmanager
def network_namespace() -> Iterator[None]:
    """Move the calling thread and what it starts to a new network namespace, for the block."""
    with _for_a_while():
        _check(_libc.unshare(_NEW_NETWORK))
        ip("link set lo up")
        yield


@contextmanager
def neighbour() -> Iterator[int]:
    """Run a process with a network namespace of its own, to move devices to. Yields its pid."""
    script = "ip link set lo up; echo; exec sleep infinity"
    with unshared("--net", "sh", "-c", script) as pid:
        yield pid


@contextmanager
def unshared(*arguments: str) -> Iterator[int]:
    """Run a program in namespaces of its own, by the arguments of unshare(1), and yield its pid. The
    program prints an empty line when it is ready."""
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
    """Move the calling thread to the network namespace of a process for the block. Sockets stay there."""
    with _for_a_while(), Path(f"/proc/{pid}/ns/net").open("rb") as there:
        _check(_libc.setns(there.fileno(), _NEW_NETWORK))
        yield


def ip(*commands: str) -> None:
    """Run `ip` commands."""
    for command in commands:
        subprocess.run(["ip", *command.split()], check=True)


def ip_batch(commands: list[str]) -> None:
    subprocess.run(["ip", "-batch", "-"], input="\n".join(commands), text=True, check=True)


def tc_batch(commands: list[str]) -> None:
    subprocess.run(["tc", "-batch", "-"], input="\n".join(commands), text=True, check=True)


def tc(*commands: str) -> None:
    """Run `tc` commands."""
    for command in commands:
        subprocess.run(["tc", *command.split()], check=True)


def inside(pid: int, *command: str) -> list[str]:
    """Return the command that runs `command` in the network namespace of a process."""
    return ["nsenter", f"--net=/proc/{pid}/ns/net", *command]


def can(*commands: str) -> bool:
    """Return True if the kernel carries out all commands, in a namespace that is gone afterwards. Debian's
    kernel can all that the gateway uses; smaller ones lack devices and qdiscs."""
    script = " && ".join(commands)
    done = subprocess.run(["unshare", "--net", "sh", "-c", script], capture_output=True, check=False)
    return os.geteuid() == 0 and done.returncode == 0


def _check(result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
