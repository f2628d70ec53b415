"""Webhook deliveries to a receiver that takes them at once, beside posts with as many threads."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import requests

from bench.pairs import Figure, compared, in_turn
from bench.parts.plan import Plan
from bench.peers.gateway import Gateway, gateway
from gateway_contract.core_client import CoreClient
from gateway_contract.varlink.client import Client
from tests.support.receivers import Fast
from tests.support.stack import PATIENCE, issued, wait_for

#: Each has a thread of the hub.
_WEBHOOKS = 4


def measured(plan: Plan) -> Iterator[tuple[str, Figure]]:
    """The figure, by the key of its goal."""
    with (
        gateway(plan.folder / "gateway", plan.many) as ours,
        Fast(plan.folder / "ids") as receiver,
        closing(Client(ours.folder / "core.sock", timeout=10)) as client,
    ):
        _register(ours, receiver)
        core, ids = CoreClient(client), count(1)
        in_all = plan.messages * _WEBHOOKS

        def deliver() -> float:
            """Deliveries a second of messages that wait for a receiver that stands still."""
            before = receiver.number
            os.kill(receiver.pid, signal.SIGSTOP)
            for _ in range(plan.messages):
                core.disconnect_session(next(ids))
            os.kill(receiver.pid, signal.SIGCONT)
            began = time.monotonic()
            wait_for("the deliveries", lambda: receiver.number >= before + in_all)
            return in_all / (time.monotonic() - began)

        def post() -> float:
            command = [
                *(sys.executable, "-m", "bench.peers.post_loop"),
                *(receiver.url, str(plan.messages), str(_WEBHOOKS)),
            ]
            ended = subprocess.run(
                command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True, check=True
            )
            return float(ended.stdout)

        rounds = in_turn(plan.effort.rounds, {"ours": deliver, "posts": post})
        yield "deliveries", compared(rounds, "ours", "posts", "/s")


def _register(ours: Gateway, receiver: Fast) -> None:
    token = issued(ours.folder, "admin", int(PATIENCE))
    for _ in range(_WEBHOOKS):
        requests.post(
            f"{ours.url}/api/v1/webhooks",
            json={"url": receiver.url, "events": ["session.down"]},
            headers={"Authorization": f"Bearer {token}"},
            verify=str(ours.certificate),
            timeout=PATIENCE,
        ).raise_for_status()
