"""Which gateways of a rollout count as failed."""

from pathlib import Path

import pytest

from gatewayctl.rollout import Member, Rollout, RolloutState, Step


@pytest.mark.parametrize("step", Step)
def test_a_gateway_has_failed_unless_it_has_the_new_configuration(tmp_path: Path, step: Step) -> None:
    # A lost response is a problem even if a later request shows that the commit is confirmed.
    member = Member("gw", "https://gw", step, problem="no response")
    state = RolloutState("a rollout", {}, [member], canary=1, wave=1, confirm_seconds=10)
    rollout = Rollout(state, tmp_path / "state.json", {}, lambda *_: None, max_threads=1)
    has_failed = step not in (Step.CONFIRMED, Step.UNCHANGED)
    assert rollout.failed_members == ([member] if has_failed else [])
