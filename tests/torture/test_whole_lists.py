"""Many clients request whole lists at a time: all get the whole, or 503 and when to come back."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import requests

from tests.support.stack import Api, core_of, running_stack
from tests.torture.test_webhooks import memory

SESSIONS = 200_000
READERS = 32
#: Whole lists, or refusals, of each reader.
REQUESTS = 5
#: MB that the core may take beside them, who took it to 1,900 before. What it has by itself is 550.
MOST_OF_CORE = 1_100


def read_lists(api: Api) -> Counter[int]:
    """The statuses of a client that asks for the whole list again and again."""
    seen = Counter[int]()
    headers = {"Authorization": f"Bearer {api.token('operator')}"}
    with requests.Session() as session:
        session.trust_env, session.verify = False, api.environment["GATEWAY_CA"]
        for _ in range(REQUESTS):
            answer = session.get(f"{api.url}/api/v1/subscribers", headers=headers, timeout=120)
            seen[answer.status_code] += 1
            if answer.status_code == 200:
                assert answer.content.count(b'"started_at":') == SESSIONS
                assert answer.content.endswith(b'"count":%d}}' % SESSIONS)
            else:
                assert answer.json()["message"] == "Too many whole lists at a time, try again in 1 s"
                assert answer.headers["Retry-After"] == "1"
    return seen


def test_32_readers_of_200000_sessions_get_the_whole_or_503_and_the_core_keeps_its_size(
    tmp_path: Path,
) -> None:
    with running_stack(tmp_path, sessions=SESSIONS) as (api, process):
        api.token("operator")
        with ThreadPoolExecutor(READERS) as readers:
            reading = [readers.submit(read_lists, api) for _ in range(READERS)]
            while not all(each.done() for each in reading):
                assert api.send("GET", "/health", None).status_code == 200
            seen = sum((each.result() for each in reading), Counter[int]())
        assert set(seen) <= {200, 503}
        assert seen[200] > 0
        assert memory(core_of(process), "VmHWM") < MOST_OF_CORE
        # Each session has two interfaces: the list is too large for one answer.
        answer = api.send("GET", "/interfaces")
        assert (answer.status_code, "limit" in answer.json()["message"]) == (400, True)
