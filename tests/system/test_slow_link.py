"""A long list over a link of 100 Mbit/s: compression takes less time than it saves."""

import time
from pathlib import Path

import pytest

from tests.support.measuring import alone
from tests.support.namespaces import can, network_namespace, tc
from tests.support.stack import Api, running_stack

#: Each client of the namespace reaches the API through its loopback device.
LINK = "qdisc add dev lo root tbf rate 100mbit burst 128k limit 16m"
SESSIONS = 10_000
#: A session each 20 ms, so that no list is kept for a later request.
ARRIVALS = 50
ROUNDS = 7

pytestmark = pytest.mark.skipif(
    not can("ip link set lo up", f"tc {LINK}"), reason="needs to be root, and a kernel with tbf"
)


def seconds(api: Api, coding: str) -> float:
    """The time until the client has the whole list with this coding, decoded."""
    began = time.monotonic()
    answer = api.send("GET", "/subscribers", "operator", headers={"Accept-Encoding": coding})
    took = time.monotonic() - began
    assert answer.headers.get("Content-Encoding", "identity") == coding
    # Some of them have just ended.
    assert answer.content.count(b'"started_at":') > 0.9 * SESSIONS
    return took


@pytest.mark.last
def test_a_compressed_list_arrives_several_times_sooner(tmp_path: Path) -> None:
    times: dict[str, list[float]] = {"identity": [], "gzip": [], "zstd": []}
    with network_namespace():
        tc(LINK)
        with running_stack(tmp_path, sessions=SESSIONS, arrivals=ARRIVALS) as (api, _), alone():
            for _ in range(ROUNDS):
                for coding, took in times.items():
                    took.append(seconds(api, coding))
    # What else the machine does only adds to a time.
    plain, gzip, zstd = (min(took) for took in times.values())
    print(f"plain {plain:.3f} s, gzip {gzip:.3f} s, zstd {zstd:.3f} s")
    assert plain > 5 * zstd
    assert plain > 4 * gzip
