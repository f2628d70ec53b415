"""What sessions of the Linux gateway cost the core, in CPU seconds: other load on the machine adds few."""

import time
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway_api.core.gateways.linux.dataplane.plane import DataPlane
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
from tests.tools.figures_of_linux import cpu_over, filled

SESSIONS = 10_000
#: With devices, which the kernel makes slowly.
SHAPED = 300
#: Sessions whose limits are made at once.
STEP = 400
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
def test_the_limits_of_a_session_cost_no_more_after_those_of_many() -> None:
    with network_namespace():
        names = [f"line{number}" for number in range(4 * STEP)]
        Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
        ip_batch([each for name in names for each in (f"link add {name} type ifb", f"link set {name} up")])
        # As on a gateway: it is the core that keeps IPv6 from the devices that it makes.
        Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("0")
        plane, spent = DataPlane(KernelReader()), []
        wanted = [
            replace(WANTED, session_id=number, device=name, ifb=f"ifb-{name}", address=None, delegated=())
            for number, name in enumerate(names, 1)
        ]
        for first in range(0, len(wanted), STEP):
            before = time.thread_time()
            outcomes = plane.repair([(each, None) for each in wanted[first : first + STEP]])
            spent.append(time.thread_time() - before)
            assert all(outcome is not None and not outcome.failed for outcome in outcomes)
        assert spent[-1] < 2 * spent[0]


@pytest.mark.slow
@needs_the_kernel
def test_a_core_at_rest_uses_little_of_a_processor(tmp_path: Path) -> None:
    with running_linux_core(tmp_path) as core:
        filled(core, SHAPED)
        share = cpu_over(core.process.pid, 30)
        assert core.call("ListFaults")["faults"] == []
    assert share < EMPTY + SHARE * SHAPED / SESSIONS
