"""The settings of the API itself: how the core tells of them, and how the hub follows them."""

import queue
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import pytest

from gateway_api.audit.forward import Destination
from gateway_api.hub import service
from gateway_api.hub.sender import DeniedNetworks
from gateway_contract.base.errors import CoreLacksMethod
from gateway_contract.base.receivers import Denied
from gateway_contract.contract import Contract, Method, bind_handlers
from gateway_contract.core.configuration import ApiSettings, GetApiSettings, HistoryLimits, Receiver
from gateway_contract.core.interface import CORE
from gateway_contract.core_client import CoreClient
from gateway_contract.varlink.client import Client
from gateway_contract.varlink.dispatcher import Dispatcher, Identity, ServedInterface
from gateway_contract.varlink.server import Server
from gateway_core.configuration import service as core_service
from gateway_core.configuration.service import ConfigurationService
from gateway_core.configuration.workspace import ChangeRequest, Workspace
from tests.support.core_clock import StillClock
from tests.support.stack import PATIENCE, wait_for
from tests.support.workspaces import opened

R = TypeVar("R")

ONE = {"url": "http://127.0.0.1:9/", "events": ["session.up"]}
OTHER = {
    "url": "http://127.0.0.1:9/other",
    "events": ["session.down"],
    "secret": "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
}


class Core:
    """A core with this method alone, of a workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.service = ConfigurationService(workspace)

    def commit(
        self, *receivers: dict[str, Any], denied: tuple[str, ...] = (), forward: str | None = None
    ) -> None:
        document = self.workspace.snapshot.running.document
        webhooks = {"receivers": list(receivers), "denied_networks": list(denied)}
        audit = {"forward": forward}
        document = {**document, "api": {**document["api"], "webhooks": webhooks, "audit": audit}}
        self.workspace.replace_running(document, ChangeRequest("test"))

    def follow(self) -> Iterator[ApiSettings | None]:
        return self.service.get_api_settings(GetApiSettings())


@pytest.fixture
def core(tmp_path: Path, document: dict[str, Any]) -> Iterator[Core]:
    with opened(tmp_path, document, StillClock()) as workspace:
        yield Core(workspace)


def receivers(*declared: dict[str, Any]) -> tuple[Receiver, ...]:
    return tuple(Receiver(one["url"], tuple(one["events"]), one.get("secret")) for one in declared)


def test_the_settings_are_those_of_the_running_configuration(core: Core) -> None:
    receiver = "tls://logs.example:6514"
    core.commit(ONE, OTHER, denied=("192.0.2.0/24", "2001:db8::/32"), forward=receiver)
    assert next(core.follow()) == ApiSettings(
        enabled=True,
        auth_token=None,
        listen_address="127.0.0.1",
        listen_port=8080,
        denied_networks=("192.0.2.0/24", "2001:db8::/32"),
        receivers=receivers(ONE, OTHER),
        history=HistoryLimits(90, 1024),
        audit_forward=receiver,
        version=core.workspace.snapshot.version,
    )


def test_a_reply_comes_from_time_to_time_without_a_commit(core: Core) -> None:
    assert core_service._MAX_WAITS * core_service._WAIT_SECONDS <= 15
    core.service._has_changed = lambda _: False  # type: ignore[method-assign]
    first, *nothing, last = islice(core.follow(), 2 + core_service._MAX_WAITS)
    assert nothing == [None] * core_service._MAX_WAITS
    assert first == last


def test_a_commit_is_told_at_once(core: Core) -> None:
    core_service._WAIT_SECONDS, wait = 600, core_service._WAIT_SECONDS
    following = core.follow()
    next(following)
    commit = threading.Timer(0.1, core.commit, [ONE])
    commit.start()
    try:
        assert next(following).receivers == receivers(ONE)
    finally:
        core_service._WAIT_SECONDS = wait
        commit.join()


# In the API


@contextmanager
def served_at(path: Path, *interfaces: ServedInterface) -> Iterator[None]:
    server = Server(path, Dispatcher(Identity("v", "p", "1", "urn:example"), interfaces))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.close()
        thread.join(PATIENCE)


def interface(core: Core) -> ServedInterface:
    return bind_handlers(Contract(CORE.name, "", (GetApiSettings,), ()), core.service)


class Registry:
    """The webhooks of a hub, as the configuration declares them."""

    def __init__(self) -> None:
        self.declared: queue.Queue[tuple[Receiver, ...]] = queue.Queue()
        self.declare = self.declared.put

    def __call__(self) -> tuple[Receiver, ...]:
        return self.declared.get(timeout=PATIENCE)


class Following(CoreClient):
    """A hub that follows the core at a socket, in a thread of its own, which ends at the first attempt after
    it `ended`."""

    def __init__(self, path: Path) -> None:
        super().__init__(Client(path, timeout=PATIENCE))
        self.registry, self.denied, self.configured = Registry(), DeniedNetworks(), threading.Event()
        self.destination = Destination()
        self.ended = False
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with suppress(SystemExit):
            service._configure(
                self, self.registry, self.denied, self.configured, lambda: True, self.destination.set
            )

    def follow(self, call: Method[R]) -> Iterator[R]:
        if self.ended:
            # `repeat` takes an Exception for a failure.
            sys.exit()
        return super().follow(call)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Following]:
    """It follows a core that is not there yet."""
    following = Following(tmp_path / "core.sock")
    assert following.configured.wait(PATIENCE)
    yield following
    following.ended = True


def test_the_destination_of_the_audit_log_is_that_of_the_last_commit(
    tmp_path: Path, core: Core, hub: Following
) -> None:
    core.commit(forward="journal")
    with served_at(tmp_path / "core.sock", interface(core)):
        # This waits for the first reply.
        assert hub.destination.get() == "journal"
        core.commit(forward=None)
        wait_for("the commit", lambda: hub.destination.get() is None)


def test_a_call_that_is_not_for_more_gets_the_settings_of_now(tmp_path: Path, core: Core) -> None:
    with (
        closing(Client(tmp_path / "core.sock", timeout=PATIENCE)) as client,
        served_at(tmp_path / "core.sock", interface(core)),
    ):
        for networks in ((), ("192.0.2.0/24",)):
            core.commit(denied=networks)
            assert CoreClient(client).get_settings().denied_networks == networks


def test_the_hub_follows_a_core_over_its_restarts(tmp_path: Path, core: Core, hub: Following) -> None:
    core.commit(ONE)
    with served_at(tmp_path / "core.sock", interface(core)):
        assert hub.registry() == receivers(ONE)
        core.commit(OTHER)
        assert hub.registry() == receivers(OTHER)
    core.commit(ONE, OTHER)
    with served_at(tmp_path / "core.sock", interface(core)):
        assert hub.registry() == receivers(ONE, OTHER)


def test_while_the_core_is_away_the_denied_networks_are_those_it_told_last_and_first_all(
    tmp_path: Path, core: Core, hub: Following
) -> None:
    networks = ("10.0.0.0/8", "fd00::/8")
    with pytest.raises(Denied, match="not known yet"):
        hub.denied()
    with served_at(tmp_path / "core.sock", interface(core)):
        hub.registry()
        core.commit(ONE, denied=networks)
        # They are known before a webhook is declared, which may be in one of them.
        assert hub.registry() == receivers(ONE)
        assert hub.denied() == networks
    assert hub.denied() == networks
    core.commit(denied=("192.0.2.0/24",))
    with served_at(tmp_path / "core.sock", interface(core)):
        hub.registry()
        assert hub.denied() == ("192.0.2.0/24",)


def test_a_core_without_the_method_denies_no_network(tmp_path: Path) -> None:
    nothing = ServedInterface(CORE.name, {}, lambda: "")
    with served_at(tmp_path / "core.sock", nothing):
        hub = Following(tmp_path / "core.sock")
        assert hub.configured.wait(PATIENCE)
        hub.ended = True
        assert hub.denied() == ()
        with pytest.raises(CoreLacksMethod, match="lacks the method GetApiSettings"):
            next(CoreClient(Client(tmp_path / "core.sock", timeout=PATIENCE)).follow(GetApiSettings()))
