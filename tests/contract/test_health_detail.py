"""What a client learns of the health of what the gateway depends on."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gateway_contract.core.health import DependencyState
from tests.support.prometheus import samples
from tests.support.running_gateway import DEPENDENCIES, faulty_gateway
from tests.support.stack import Api

DETAIL = "/system/health/detail"


@pytest.fixture(scope="module")
def faulty(api: Api, state: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with faulty_gateway(api, state, tmp_path_factory.mktemp("faulty")) as made:
        yield made


def test_any_role_sees_what_the_gateway_depends_on(api: Api) -> None:
    for role in ("admin", "operator"):
        health = {one["name"]: one for one in api.get(DETAIL, role)["dependencies"]}
        own = ("hub", "certificate", "disk", "counters", "ledger")
        assert list(health) == ["core", "lab", "radius", "frr", "clock", *own]
    # The lab says that it is one.
    states = [health[name]["state"] for name in ("core", "lab", "radius", "frr", "clock")]
    assert states == ["ok", "ok", "unused", "unused", "unused"]
    assert "simulation" in health["radius"]["message"]


def test_the_detail_requires_a_token_and_has_no_parameters(api: Api) -> None:
    token = api.new_token("operator")
    assert api.send("POST", "/auth/logout", token=token).status_code == 200
    assert api.send("GET", DETAIL, token=token).status_code == 401
    assert api.send("GET", DETAIL, None).status_code == 401
    assert api.send("GET", f"{DETAIL}?state=ok").status_code == 400


def test_the_whole_is_as_bad_as_the_worst_and_each_state_has_a_gauge(faulty: Api) -> None:
    detail = faulty.get(DETAIL)
    assert detail["dependencies"][1:6] == list(msgspec.to_builtins(DEPENDENCIES))
    assert detail["state"] == "failed"
    severities = {"ok": 0, "unused": 0, "unknown": 1, "degraded": 2, "failed": 3}
    found = samples(faulty)
    for one in detail["dependencies"]:
        assert found[f'gateway_dependency_state{{dependency="{one["name"]}"}}'] == severities[one["state"]]
    assert {one["state"] for one in detail["dependencies"]} == set(DependencyState)
