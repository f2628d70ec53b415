"""The check of the process at the other end of a connection."""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gateway_api.wire.varlink.protocol import Stranger, check_peer

#: Connects to the socket of this abstract name (unix(7)), and waits for the end of its input.
_CALLER = """
import socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1].replace("@", chr(0)))
    input()
"""
_NOBODY = 65534


@contextmanager
def connected(name: str, **owner: Any) -> Iterator[socket.socket]:
    """Our end of a connection from a process with these arguments of Popen."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        command = ["/usr/bin/python3", "-c", _CALLER, f"@{name}"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, cwd="/", **owner) as caller:
            ours, _ = listener.accept()
            with ours:
                yield ours
            caller.communicate(b"\n")


@pytest.mark.parametrize(
    "groups",
    [{"group": os.getegid(), "extra_groups": []}, {"group": _NOBODY, "extra_groups": [1, os.getegid()]}],
)
def test_a_process_in_our_group_is_trusted(groups: dict[str, Any]) -> None:
    with connected(
        f"trusted-{os.getpid()}-{len(groups['extra_groups'])}", user=_NOBODY, **groups
    ) as connection:
        assert check_peer(connection).user == _NOBODY


@pytest.mark.parametrize("extra", [[], [1, 2], list(range(1, 1000))])
def test_a_process_in_other_groups_is_a_stranger(extra: list[int]) -> None:
    name = f"stranger-{os.getpid()}-{len(extra)}"
    with (
        connected(name, user=_NOBODY, group=_NOBODY, extra_groups=extra) as connection,
        pytest.raises(Stranger, match="user 65534 and group 65534, which are not trusted"),
    ):
        check_peer(connection)
