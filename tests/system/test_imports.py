"""Which modules a process loads, and which it leaves until they are necessary."""

import subprocess
import sys

import pytest

#: They take longer than all that the help needs.
LATE = {
    "gateway_api.wire.configuration",
    "importlib.metadata",
    "requests",
    "ssl",
}
_LOADED = """
import atexit, sys
atexit.register(lambda: sys.stderr.write(" ".join(sys.modules)))
sys.argv = sys.argv[1:]
from gateway_api.cli.ctl.__main__ import main
sys.exit(main())
"""


def loaded(*arguments: str) -> set[str]:
    """The modules of `gatewayctl` at its end."""
    ended = subprocess.run(
        [sys.executable, "-c", _LOADED, "gatewayctl", *arguments],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert ended.stdout.startswith("Usage: gatewayctl")
    return set(ended.stderr.split())


@pytest.mark.parametrize("command", ["", "subscribers", "config", "config set"])
def test_a_help_loads_no_module_that_it_does_without(command: str) -> None:
    assert loaded(*command.split(), "--help") & LATE == set()
