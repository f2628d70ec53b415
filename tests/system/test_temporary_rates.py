"""Temporary rates of a core that is killed."""

import json
from pathlib import Path
from typing import Any

from tests.support.stack import call_core, running_core, wait_for

MEGABIT = 1_000_000


def test_the_former_rate_returns_after_a_restart_of_the_core(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    socket, factory = tmp_path / "core.sock", tmp_path / "factory.json"
    factory.write_text(json.dumps(document))

    def rates(id: int) -> tuple[int, int]:
        session = call_core(socket, "GetSession", id=id)["session"]
        return session["rate_down_bps"] // MEGABIT, session["rate_up_bps"] // MEGABIT

    with running_core(socket, factory, "--sessions", "20") as core:
        # No default: the core cannot know them but from its disk.
        call_core(socket, "SetSessionRate", id=7, rate_down_bps=50 * MEGABIT, rate_up_bps=5 * MEGABIT)
        call_core(socket, "SetSessionRate", id=7, rate_down_bps=300 * MEGABIT, expires_in=5)
        call_core(socket, "SetSessionRate", id=8, rate_down_bps=300 * MEGABIT, expires_in=3600)
        core.kill()
        core.wait()
    with running_core(socket, factory, "--sessions", "20"):
        # A busy machine may have taken 5 s until now.
        assert rates(7) in ((300, 5), (50, 5))
        assert rates(8) == (300, 20)
        wait_for("the former rates", lambda: rates(7) == (50, 5))
        assert rates(8) == (300, 20)
