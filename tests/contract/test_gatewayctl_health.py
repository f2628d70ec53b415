"""What a gateway depends on, with `gatewayctl`."""

import json
from collections.abc import Iterator

import pytest

from tests.support.desk import Desk
from tests.support.faulty_core import faulty_gateway
from tests.support.pretender import Gateway
from tests.support.stack import Api

pytestmark = pytest.mark.slow

FAILED = 1


@pytest.fixture
def faulty(gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with faulty_gateway(gateway.api, gateway.state, tmp_path_factory.mktemp("faulty")) as made:
        yield made


def test_a_gateway_that_is_well_has_only_well_dependencies(operator: Desk) -> None:
    states = {each["name"]: each["state"] for each in operator.json("health", "--detail")}
    assert states["core"] == "ok"


def test_a_dependency_that_is_ill_is_no_success(faulty: Api, operator: Desk) -> None:
    operator.has(faulty.new_token("operator"), url=faulty.url)
    operator.environment["GATEWAY_URL"] = faulty.url
    ended = operator.run("-o", "json", "health", "--detail")
    assert ended.status == FAILED
    assert "failed" in {each["state"] for each in json.loads(ended.out)}
