"""What sessions of the Linux gateway cost the core, in CPU seconds: other load on the machine adds few."""

import time
from contextlib import closing
from pathlib import Path

import pytest

from gateway_api.core.gateways.linux.sessions.session_store import SessionStore
from gateway_api.core.gateways.linux.sessions.tracker import Tracker
from gateway_api.core.gateways.linux.sources.accel_ppp import AccelPpp
from gateway_api.core.records.clock import Clock
from gateway_api.core.sessions.journal import Journal
from tests.support.linux_core import running_linux_core, subscriber
from tests.support.running_accel import running_accel
from tests.support.sources import CGNAT, Surroundings, poll
from tests.system.test_linux_core import pytestmark as needs_the_kernel
from tests.tools.figures_of_linux import cpu_over, filled

SESSIONS = 10_000
#: With devices, which the kernel makes slowly.
SHAPED = 300
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
def test_a_core_at_rest_uses_little_of_a_processor(tmp_path: Path) -> None:
    with running_linux_core(tmp_path) as core:
        filled(core, SHAPED)
        share = cpu_over(core.process.pid, 30)
        assert core.call("ListFaults")["faults"] == []
    assert share < EMPTY + SHARE * SHAPED / SESSIONS
