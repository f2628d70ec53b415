"""Deliveries to names, which a DNS server of the test resolves in a network of its own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DENIED = ("metadata.test", "mapped.test", "unspecified.test", "unspecified6.test", "mapped-unspecified.test")
DENIED += ("group.test", "broadcast.test", "hosts-file.test", "metadata-second.test")


@pytest.fixture(scope="module")
def resolved() -> dict[str, Any]:
    """What came of deliveries to names that a DNS server of the test's own resolves."""
    if os.geteuid() != 0 or not (shutil.which("unshare") and shutil.which("ip")):
        pytest.skip("needs root, unshare and ip to have a network of its own")
    command = ["unshare", "--net", "--mount", "--fork", "--kill-child", sys.executable, "-m"]
    command.append("tests.system.resolving")
    done = subprocess.run(command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((name, [200, 200]) for name in ("loopback.test", "private.test", "private6.test")),
        # By the first address that takes a connection.
        ("second-chance.test", [200, 200]),
        *((name, [None, None]) for name in DENIED),
        # The name changes its mind, or the configuration.
        ("turncoat.test", [200, None]),
        ("repentant.test", [None, 200]),
        ("denied-later.test", [200, None]),
    ],
)
def test_a_name_is_delivered_to_unless_it_resolves_to_a_denied_address(
    resolved: dict[str, Any], name: str, expected: list[int | None]
) -> None:
    attempts = resolved["results"][name]
    assert [attempt["status"] for attempt in attempts] == expected
    for attempt in attempts:
        assert attempt["status"] or "is no address to deliver to" in attempt["error"]


def test_nobody_connects_to_a_denied_address(resolved: dict[str, Any]) -> None:
    expected = {"169.254.169.254": 0, "10.9.9.9": 2, "10.9.9.10": 1, "fd00:9::9": 2, "127.0.0.1": 6}
    assert resolved["reached"] == expected


@pytest.mark.parametrize("name", ["nobody.test", "unknown.test"])
def test_a_name_without_an_address_is_said_to_have_none(resolved: dict[str, Any], name: str) -> None:
    assert [one["error"] for one in resolved["results"][name]] == ["the name has no address"] * 2


def test_an_attempt_ends_in_time_where_no_name_server_answers(resolved: dict[str, Any]) -> None:
    (attempt,) = resolved["results"]["silence.test"]
    assert attempt["error"] == "timeout"
    # Another query would take ten seconds more.
    assert 9.5 < attempt["seconds"] < 19
