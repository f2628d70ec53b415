"""Rates for a time: when the former ones return, and which."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway_contract.base.errors import StepFailed
from gateway_contract.core.sessions import MAX_EXPIRY_SECONDS, SessionDetail
from gateway_contract.varlink.protocol import ErrorReply
from gateway_core.configuration.running import RunningConfiguration
from gateway_core.gateways.lab.gateway import LabGateway
from gateway_core.gateways.lab.population import Population
from gateway_core.service.rates import NewRates, RateChange, Rates
from gateway_core.sessions.journal import Journal
from gateway_core.sessions.session import Session
from tests.support.clocks import NOW
from tests.support.core_clock import StillClock
from tests.support.workspaces import no_file_longer_than

#: Of etc/factory.json and the tests' document.
DEFAULT = (100_000_000, 20_000_000)
MEGABIT = 1_000_000
YEAR = 365 * 86_400


class Core:
    """A lab with three sessions, its rates, and which of them have returned."""

    def __init__(self, document: dict[str, Any], clock: StillClock, folder: Path) -> None:
        configuration = RunningConfiguration.of(document).sections
        self.clock = clock
        population = Population(3, 0.0, 1)
        self.gateway = LabGateway(configuration, population, Journal("life"), clock, folder / "rates.json")
        self.returned: list[RateChange] = []
        self.rates = Rates(self.gateway, Journal("life"), clock, self.returned.append)

    def change(self, id: int = 2, **wanted: int | None) -> None:
        names = ("down", "up", "expires_in", "until")
        new = NewRates(*(wanted.get(name) for name in names))
        new.check(self.clock)
        assert self.rates.change(id, new) is not None

    def detail(self, id: int = 2) -> SessionDetail:
        found = self.gateway.read_detail(id)
        assert found is not None
        return found

    def now(self, id: int = 2) -> tuple[int, int]:
        return self.detail(id).rate_down_bps, self.detail(id).rate_up_bps

    def later(self, seconds: float) -> tuple[int, int]:
        """The rates after so many seconds."""
        self.clock.now += seconds
        self.rates.restore_due_rates()
        return self.now()


@pytest.fixture
def start(document: dict[str, Any], tmp_path: Path) -> Callable[[StillClock], Core]:
    """Starts the core again on the same disk."""
    return lambda clock: Core(document, clock, tmp_path)


@pytest.fixture
def core(start: Callable[[StillClock], Core]) -> Core:
    return start(StillClock())


def test_the_former_rates_return_after_the_seconds_and_not_before(core: Core) -> None:
    core.change(down=300 * MEGABIT, up=30 * MEGABIT, expires_in=60)
    assert core.later(59.9) == (300 * MEGABIT, 30 * MEGABIT)
    assert core.later(0.2) == DEFAULT
    ((before, after),) = core.returned
    assert (before.rate_down_bps, after.rate_down_bps) == (300 * MEGABIT, DEFAULT[0])
    assert core.later(3600) == DEFAULT
    assert len(core.returned) == 1


def test_detail_and_qos_show_the_expiry_and_the_detail_what_returns(core: Core) -> None:
    def shown() -> tuple[int | None, int | None, int | None, list[int | None]]:
        detail = core.detail()
        qos = [record.rate_expires_at for record in core.gateway.sessions.rows(Session.make_qos).records()]
        return detail.rate_expires_at, detail.former_rate_down_bps, detail.former_rate_up_bps, qos

    core.change(down=300 * MEGABIT, expires_in=60)
    assert shown() == (NOW + 60, *DEFAULT, [None, NOW + 60, None])
    core.later(60)
    assert shown() == (None, None, None, [None, None, None])


def test_after_several_temporary_changes_the_rates_before_the_first_one_return(core: Core) -> None:
    core.change(down=50 * MEGABIT)
    core.change(up=5 * MEGABIT)
    core.change(down=300 * MEGABIT, expires_in=60)
    assert core.now() == (300 * MEGABIT, 5 * MEGABIT)
    core.change(up=40 * MEGABIT, until=NOW + 120)
    assert core.later(61) == (300 * MEGABIT, 40 * MEGABIT)
    assert core.later(60) == (50 * MEGABIT, 5 * MEGABIT)
    # A change for good cancels the return.
    core.change(down=300 * MEGABIT, expires_in=60)
    core.change(down=200 * MEGABIT)
    assert core.detail().rate_expires_at is None
    assert core.later(61) == (200 * MEGABIT, 5 * MEGABIT)


def test_temporary_rates_and_their_end_outlast_a_restart(
    core: Core, start: Callable[[StillClock], Core]
) -> None:
    core.change(down=50 * MEGABIT, up=5 * MEGABIT)
    core.change(down=300 * MEGABIT, expires_in=60)
    core.later(30)
    again = start(core.clock)
    assert again.later(29.9) == (300 * MEGABIT, 5 * MEGABIT)
    assert again.later(0.2) == (50 * MEGABIT, 5 * MEGABIT)
    assert start(core.clock).detail().rate_expires_at is None
    # What ended before the restart has no rates to return.
    again.change(down=300 * MEGABIT, expires_in=60)
    again.gateway.disconnect([2])
    assert start(core.clock).now() == DEFAULT


@pytest.mark.parametrize("wanted", [{"expires_in": 20}, {"until": NOW + 20}])
def test_after_a_reboot_with_a_clock_that_is_behind_the_former_rates_return_within_the_seconds(
    core: Core, start: Callable[[StillClock], Core], wanted: dict[str, int]
) -> None:
    core.change(down=300 * MEGABIT, **wanted)
    core.clock.reboot(ahead=-56 * YEAR)
    # More restarts leave no more time.
    for _ in range(2):
        again = start(core.clock)
        assert again.later(5) == (300 * MEGABIT, DEFAULT[1])
    assert again.later(9) == (300 * MEGABIT, DEFAULT[1])
    assert again.later(1) == DEFAULT


def test_after_a_reboot_a_clock_that_is_set_right_says_when_the_former_rates_return(
    core: Core, start: Callable[[StillClock], Core]
) -> None:
    core.change(down=300 * MEGABIT, expires_in=60)
    core.clock.now += 30
    core.clock.reboot(ahead=-56 * YEAR)
    again = start(core.clock)
    assert again.later(5) == (300 * MEGABIT, DEFAULT[1])
    # Shown no later than the seconds.
    assert again.detail().rate_expires_at == again.clock.wall() + 55
    again.clock.ahead = 0.0
    again.clock.now = NOW + 59
    assert again.later(0) == (300 * MEGABIT, DEFAULT[1])
    assert again.detail().rate_expires_at == NOW + 60
    assert again.later(1) == DEFAULT


def test_a_clock_that_is_set_moves_a_given_time_and_no_number_of_seconds(core: Core) -> None:
    core.change(down=300 * MEGABIT, expires_in=60)
    core.change(1, down=300 * MEGABIT, until=NOW + 3600)
    core.clock.ahead = 3600
    assert core.later(30) == (300 * MEGABIT, DEFAULT[1])
    assert core.now(1) == DEFAULT
    assert core.detail().rate_expires_at == NOW + 60 + 3600
    assert core.later(31) == DEFAULT


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        (NewRates(None, None, 60, None), "rate_down_bps"),
        (NewRates(1, None, 60, NOW + 60), "until"),
        (NewRates(1, None, None, NOW), "until"),
        (NewRates(1, None, None, NOW + MAX_EXPIRY_SECONDS + 1), "until"),
    ],
)
def test_what_makes_no_sense_is_refused(core: Core, wanted: NewRates, named: str) -> None:
    with pytest.raises(ErrorReply) as raised:
        wanted.check(core.clock)
    assert bytes(raised.value.parameters) == b'{"parameter":"%s"}' % named.encode()


def test_a_return_that_fails_is_tried_again_and_holds_up_no_other(
    core: Core, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    set_rate = core.gateway.set_rate

    def refuses_one(id: int, *more: Any) -> Any:
        if id == 1:
            raise StepFailed("shape the session", "No buffer space available")
        return set_rate(id, *more)

    for id in (1, 2):
        core.change(id, down=300 * MEGABIT, expires_in=60)
    with monkeypatch.context() as patched:
        patched.setattr(core.gateway, "set_rate", refuses_one)
        for _ in range(100):
            core.later(0.7)
    assert (core.now(1)[0], core.now(2)[0]) == (300 * MEGABIT, DEFAULT[0])
    assert "cannot restore the former rates of session 1, next attempt in 5 s: cannot shape" in caplog.text
    # Every 5 s, not each time.
    assert len(caplog.records) == 2
    core.later(5)
    assert core.now(1) == DEFAULT


def test_a_rate_that_cannot_be_kept_is_not_in_force(core: Core) -> None:
    core.change(1, down=200 * MEGABIT, expires_in=60)
    with no_file_longer_than(64), pytest.raises(StepFailed):
        core.change(down=300 * MEGABIT, expires_in=60)
    assert core.now() == DEFAULT
    assert core.detail().rate_expires_at is None


def test_a_harmed_file_of_rates_is_logged_and_costs_the_rates_alone(
    core: Core, start: Callable[[StillClock], Core], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    core.change(1, down=200 * MEGABIT, expires_in=60)
    (tmp_path / "rates.json").write_bytes(b"no rates")
    again = start(core.clock)
    assert again.now(1) == DEFAULT
    assert "temporary rates of the lab, the rates are lost" in caplog.text
    again.change(1, down=300 * MEGABIT, expires_in=60)
    assert start(core.clock).now(1)[0] == 300 * MEGABIT
