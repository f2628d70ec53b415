"""Deliveries to names, which a DNS server of the test resolves in a network of its own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PYTHON_IN_A_NAMESPACE = ["unshare", "--net", "--mount", "--fork", "--kill-child", sys.executable, "-m"]


@pytest.fixture(scope="module")
def resolved() -> dict[str, Any]:
    """What came of deliveries to names that a DNS server of the test's own resolves."""
    if os.geteuid() != 0 or not (shutil.which("unshare") and shutil.which("ip")):
        pytest.skip("needs root, unshare and ip to have a network of its own")
    done = subprocess.run(
        [*PYTHON_IN_A_NAMESPACE, "tests.system.resolving"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def statuses(resolved: dict[str, Any], name: str) -> list[int | None]:
    return [attempt["status"] for attempt in resolved["results"][name]]


@pytest.mark.parametrize("name", ["loopback.test", "private.test", "private6.test", "second-chance.test"])
def test_a_name_is_delivered_to_at_its_first_address_that_takes_a_connection(
    resolved: dict[str, Any], name: str
) -> None:
    assert statuses(resolved, name) == [200, 200]


@pytest.mark.parametrize(
    "name",
    [
        *("metadata.test", "mapped.test", "unspecified.test", "unspecified6.test", "mapped-unspecified.test"),
        *("group.test", "broadcast.test", "hosts-file.test", "metadata-second.test"),
    ],
)
def test_a_name_that_resolves_to_a_denied_address_is_not_connected_to(
    resolved: dict[str, Any], name: str
) -> None:
    assert statuses(resolved, name) == [None, None]
    assert all("is no address to deliver to" in one["error"] for one in resolved["results"][name])


def test_a_name_that_changes_its_mind_is_denied_from_then_on(resolved: dict[str, Any]) -> None:
    assert statuses(resolved, "turncoat.test") == [200, None]


def test_a_name_that_was_denied_may_become_one_that_is_not(resolved: dict[str, Any]) -> None:
    assert statuses(resolved, "repentant.test") == [None, 200]


def test_a_name_in_a_network_that_is_denied_later_is_denied_from_then_on(resolved: dict[str, Any]) -> None:
    assert statuses(resolved, "denied-later.test") == [200, None]


def test_nobody_connects_to_a_denied_address(resolved: dict[str, Any]) -> None:
    expected = {"169.254.169.254": 0, "10.9.9.9": 2, "10.9.9.10": 1, "fd00:9::9": 2, "127.0.0.1": 6}
    assert resolved["reached"] == expected


@pytest.mark.parametrize("name", ["nobody.test", "unknown.test"])
def test_a_name_without_an_address_is_said_to_have_none(resolved: dict[str, Any], name: str) -> None:
    assert [one["error"] for one in resolved["results"][name]] == ["the name has no address"] * 2


@pytest.mark.parametrize("name", ["black-holes.test", "silence.test"])
def test_an_attempt_ends_in_time_where_no_name_server_or_none_of_many_addresses_answers(
    resolved: dict[str, Any], name: str
) -> None:
    (attempt,) = resolved["results"][name]
    assert attempt["error"] == "timeout"
    assert 9.5 < attempt["seconds"] < 11
