"""dawos-agent 0.4 before a stand-in of accel-ppp's `accel-cmd`, which prints a table of sessions from a file.

It calls `accel-cmd -p PORT show sessions COLUMNS` for each list. Its rate limit is off: it would refuse the
third request of a second. Read in dawos_agent/config.py, services/accel.py and constants.py.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.load import Request, Target
from bench.processes import listening
from tests.support.stack import free_port

_PROGRAM = Path(sys.prefix) / "bench" / "bin" / "dawos-agent"
_KEY = "bench"
_COLUMNS = (
    *("ifname", "username", "ip", "calling-sid", "rate-limit"),
    *("type", "state", "uptime", "rx-bytes", "tx-bytes"),
)


def is_installed() -> bool:
    return _PROGRAM.exists()


@contextmanager
def dawos(folder: Path, sessions: int) -> Iterator[Request]:
    """The request of its list. It has no TLS."""
    folder.mkdir(parents=True)
    port, table, stand_in = free_port(), folder / "table", folder / "accel-cmd"
    table.write_text("\n".join(_lines(sessions)))
    stand_in.write_text(f"#!/bin/sh\nexec cat {table}\n")
    stand_in.chmod(0o755)
    environment = {
        "DAWOS_HOST": "127.0.0.1",
        "DAWOS_PORT": str(port),
        "DAWOS_API_KEY": _KEY,
        "DAWOS_ACCEL_CMD": str(stand_in),
        "DAWOS_ACCEL_CONFIG_PATH": str(folder / "accel-ppp.conf"),
        "DAWOS_HISTORY_DB": str(folder / "history.db"),
        "DAWOS_RATE_LIMIT": "",
    }
    with listening([str(_PROGRAM)], port, folder / "log", environment):
        url, path = f"http://127.0.0.1:{port}", "/api/v1/sessions"
        yield Request(url, (Target(path),), headers={"X-API-Key": _KEY})


def _lines(sessions: int) -> Iterator[str]:
    yield "|".join(_COLUMNS)
    yield "+".join("-" * len(name) for name in _COLUMNS)
    for number in range(sessions):
        mac, ip = (
            (2 << 40 | number).to_bytes(6).hex(":"),
            f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",
        )
        start = (f"ppp{number}", f"subscriber{number:06d}@lab.example", ip, mac, "100000/20000")
        yield "|".join((*start, "pppoe", "active", "1.02:03:04", "27.2 GiB", "136.0 GiB"))
