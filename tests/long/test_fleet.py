"""Two hundred kills in a fleet: relays, cores, NATS servers and consumers, with cuts and full disks."""

import random
from pathlib import Path

import pytest

from tests.support.troubled_fleet import troubled_fleet

#: How often each trouble happens. The leader and a core are two kills.
KILLS = {
    "kill_relay": 60,
    "kill_core": 40,
    "kill_server": 40,
    "kill_leader": 20,
    "kill_leader_and_core": 5,
    "kill_consumer": 30,
}
OTHERS = {
    "cut_relay_from_nats": 10,
    "cut_relay_from_gateway": 10,
    "cut_relay_from_nats_for_an_hour": 6,
    "cut_relay_from_gateway_for_an_hour": 6,
    "fill_spool": 4,
    "fill_journal": 1,
    "fill_disk_of_spool": 5,
    "fill_disk_of_store": 5,
    "fill_disk_of_leader": 5,
    "fill_disk_of_database": 5,
}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [1])
def test_no_event_is_lost_or_applied_twice(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    kinds = [kind for kind, count in (KILLS | OTHERS).items() for _ in range(count)]
    chance.shuffle(kinds)
    with troubled_fleet(tmp_path, seed) as fleet:
        for kind in kinds:
            fleet.trouble(kind)
        print(fleet.report())
        assert fleet.count_disorder()["stored again"] == 0
