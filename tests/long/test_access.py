"""100,000 requests of four workers while the settings of access change in every way, mixed at random."""

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.torture.test_access import running_gateway

REQUESTS = 100_000
#: How many such system calls a commit makes, at least.
CALLS = {"mkdir": 1, "openat": 7, "write": 3, "fsync": 6, "utimensat": 1, "rename": 1, "sendto": 1}
#: How often each kind of change is chosen. The others take as long as many commits.
WEIGHTS = {"commit": 200, "return_by_deadline": 1, "rescue": 2, "restart": 2, "kill": 8}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [1])
def test_no_request_after_a_change_has_the_rights_before_it(tmp_path: Path, seed: int) -> None:
    chance, changes = Random(seed), Counter[str]()
    with running_gateway(tmp_path) as gateway:
        while gateway.judged < REQUESTS:
            (kind,) = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
            enabled = chance.random() < 0.5
            changes[kind] += 1
            if kind == "kill":
                system_call = chance.choice(list(CALLS))
                gateway.kill(system_call, enabled, chance.randint(1, CALLS[system_call]))
            elif kind == "rescue":
                gateway.rescue()
            else:
                getattr(gateway, kind)(enabled)
    print(f"{gateway.judged} requests, {dict(changes)}")
    assert changes.keys() == WEIGHTS.keys()
