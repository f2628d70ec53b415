"""What sessions of the Linux gateway cost the core, in CPU seconds: other load on the machine adds few."""

import time
from collections.abc import Sequence
from contextlib import closing
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway_api.core.gateways.linux.dataplane.plane import DataPlane
from gateway_api.core.gateways.linux.dataplane.wanted import WantedSession
from gateway_api.core.gateways.linux.kernel import exchange
from gateway_api.core.gateways.linux.kernel.reader import KernelReader
from gateway_api.core.gateways.linux.sessions.session_store import SessionStore
from gateway_api.core.gateways.linux.sessions.tracker import Tracker
from gateway_api.core.gateways.linux.sources.accel_ppp import AccelPpp
from gateway_api.core.records.clock import Clock
from gateway_api.core.sessions.journal import Journal
from tests.support.linux_core import running_linux_core, subscriber
from tests.support.namespaces import ip_batch, network_namespace
from tests.support.running_accel import running_accel
from tests.support.sources import CGNAT, Surroundings, poll
from tests.system.test_data_plane import WANTED
from tests.system.test_linux_core import pytestmark as needs_the_kernel
from tests.system.test_shaping import HAS_FQ_CODEL
from tools.figures_of_linux import cpu_over, filled

SESSIONS = 10_000
#: With devices, which the kernel makes slowly.
SHAPED = 300
#: Sessions whose limits are made one after the other, some at once.
STEP, AT_ONCE = 1000, 250
#: A session at 10,000 may cost so many times one at 1,000. For each fq_codel, the kernel walks a list of all.
GROWTH = 8 if HAS_FQ_CODEL else 2
#: Of one processor, at rest: with SESSIONS, and without any.
SHARE, EMPTY = 0.15, 0.01


def test_a_sweep_of_10_000_sessions_takes_less_than_a_second(tmp_path: Path) -> None:
    with running_accel() as accel, closing(SessionStore(tmp_path / "sessions")) as store:
        accel.up(*(subscriber(number, rate="20000/5000") for number in range(SESSIONS)))
        source = AccelPpp("accel-ppp", accel.command_line(timeout=60), tmp_path / "ipoe", Clock("boot"))
        with closing(source):
            tracker = Tracker([source], store, Journal("boot"), Clock("boot"), CGNAT, Surroundings())
            poll(tracker)
            assert len(tracker.sessions) == SESSIONS
            before = time.thread_time()
            poll(tracker)
            spent = time.thread_time() - before
    assert spent < 1


@pytest.mark.slow
@needs_the_kernel
def test_10_000_sessions_get_limits_and_routes_in_15_seconds_and_the_last_as_fast_as_the_first() -> None:
    with network_namespace():
        wanted, plane = lines(SESSIONS), DataPlane(KernelReader())
        spent = [made(plane, wanted[first : first + STEP]) for first in range(0, SESSIONS, STEP)]
        assert len(KernelReader().qdisc_entries()) >= 3 * SESSIONS
    # A slow machine, where the first thousand take more than half a second, gets more.
    assert sum(spent) < 15 * max(1, 2 * spent[0])
    assert min(spent[-2:]) < GROWTH * min(spent[:2])


@needs_the_kernel
def test_the_core_adds_little_to_the_time_that_the_kernel_takes_for_limits_and_routes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_parts, changes = exchange._in_parts, list[bytes]()

    def told(step: str, requests: Sequence[bytes], at_once: int) -> Any:
        if at_once == exchange._CHANGES_AT_ONCE:
            changes.extend(requests)
        return in_parts(step, requests, at_once)

    with network_namespace():
        wanted = lines(STEP)
        with monkeypatch.context() as patched:
            patched.setattr(exchange, "_in_parts", told)
            spent = made(DataPlane(KernelReader()), wanted)
    # The devices have the same indexes there.
    with network_namespace():
        lines(STEP)
        before = time.thread_time()
        replies = in_parts("make all", changes, exchange._CHANGES_AT_ONCE)
        kernels = time.thread_time() - before
    # A kernel may lack fq_codel: one session finds it out.
    assert sum(reply.code != 0 for reply in replies) <= 1
    assert spent < 3 * kernels


def lines(number: int) -> list[WantedSession]:
    """Sessions without limits yet, with the devices that they have."""
    names = [f"line{each}" for each in range(number)]
    ip_batch(["address add 100.64.0.1/32 dev lo"])
    Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
    ip_batch([each for name in names for each in (f"link add {name} type ifb", f"link set {name} up")])
    # As on a gateway: it is the core that keeps IPv6 from the devices that it makes.
    Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("0")
    return [
        replace(
            WANTED, session_id=each, device=name, ifb=f"ifb-{name}",
            address=IPv4Address("100.64.1.0") + each, delegated=(),
        )
        for each, name in enumerate(names, 1)
    ]  # fmt: skip


def made(plane: DataPlane, wanted: Sequence[WantedSession]) -> float:
    """CPU seconds of the core and the kernel until sessions have all that they need."""
    before = time.thread_time()
    for first in range(0, len(wanted), AT_ONCE):
        outcomes = plane.repair([(each, None) for each in wanted[first : first + AT_ONCE]])
        assert all(outcome is not None and not outcome.failed for outcome in outcomes)
    return time.thread_time() - before


@pytest.mark.slow
@needs_the_kernel
def test_a_core_at_rest_uses_little_of_a_processor(tmp_path: Path) -> None:
    with running_linux_core(tmp_path) as core:
        filled(core, SHAPED)
        share = cpu_over(core.process.pid, 30)
        assert core.call("ListFaults")["faults"] == []
    assert share < EMPTY + SHARE * SHAPED / SESSIONS
