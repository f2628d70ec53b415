"""Relays, gateways, NATS servers and a consumer that are killed, cut off and put on full disks."""

import random
from pathlib import Path

from tests.support.troubled_fleet import troubled_fleet

KINDS = (
    "kill_relay",
    "kill_core",
    "kill_leader",
    "kill_consumer",
    "cut_relay_from_nats_for_an_hour",
    "cut_relay_from_gateway_for_an_hour",
    "fill_spool",
    "fill_disk_of_spool",
    "fill_disk_of_store",
    "fill_disk_of_database",
)


def test_no_event_is_lost_or_applied_twice(tmp_path: Path) -> None:
    with troubled_fleet(tmp_path, seed=1, gateways=3) as fleet:
        for kind in random.Random(1).sample(KINDS, len(KINDS)):
            fleet.trouble(kind)
        print(fleet.report())
