"""The relay: what happens on a gateway arrives in JetStream, each message once, with the body of the API."""

from collections.abc import Iterator

import pytest

from tests.support.nats import NatsServer, running_nats
from tests.support.relay import Relay, running_relay
from tests.support.stack import Api, running_stack


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Api, NatsServer, Relay]]:
    """A gateway with 1,200 sessions, a NATS server, and the relay of an admin."""
    folder = tmp_path_factory.mktemp("relay")
    with (
        running_stack(folder / "state", sessions=1200) as (api, _),
        running_nats(folder / "nats") as nats,
    ):
        nats.add_stream()
        with running_relay(folder / "relay", api, nats) as relay:
            relay.wait_for_messages("snapshot", 3)
            yield api, nats, relay


def test_first_contact_is_a_snapshot_of_all_sessions(site: tuple[Api, NatsServer, Relay]) -> None:
    api, _, relay = site
    parts = [message.data for message in relay.list_messages("snapshot")]
    assert [(part["part"], part["is_last"], part["reason"]) for part in parts] == [
        (1, False, "first_contact"),
        (2, False, "first_contact"),
        (3, True, "first_contact"),
    ]
    assert len({(part["id"], part["after"]) for part in parts}) == 1
    assert sum(map(len, (part["sessions"] for part in parts))) == 1200
    assert parts[0]["sessions"][0].keys() == api.get("/subscribers?limit=1")["sessions"][0].keys()
