"""Reads of many gateways side by side: the order of the values, and what a thread raises."""

import time

import pytest

from gateway_client.contexts import Context
from gateway_client.errors import NoResponse, Refused
from gateway_client.gateway import RemoteGateway
from gatewayctl.cli import read_side_by_side

GATEWAYS = [RemoteGateway(Context(name, f"https://{name}")) for name in ("first", "second", "third")]


def test_values_and_errors_are_in_the_order_of_the_gateways() -> None:
    refused = Refused("no")

    def read(gateway: RemoteGateway) -> str:
        if gateway.context.name == "second":
            raise refused
        time.sleep(0.1 if gateway.context.name == "first" else 0)
        return gateway.context.name

    assert read_side_by_side(GATEWAYS, read, 60) == ["first", refused, "third"]


def test_a_read_that_takes_too_long_is_an_error_that_names_the_gateway() -> None:
    def read(gateway: RemoteGateway) -> str:
        time.sleep(2 if gateway.context.name == "third" else 0)
        return gateway.context.name

    first, second, late = read_side_by_side(GATEWAYS, read, 1)
    assert (first, second) == ("first", "second")
    assert isinstance(late, NoResponse)
    assert late.lines == (
        "no complete response from a gateway at https://third within 1 s",
        "--deadline SECONDS allows more time",
    )


def test_an_error_of_the_program_is_not_an_error_of_a_gateway() -> None:
    def read(gateway: RemoteGateway) -> str:
        raise KeyError(gateway.context.name)

    with pytest.raises(KeyError):
        read_side_by_side(GATEWAYS, read, 60)
