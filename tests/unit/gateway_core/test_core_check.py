"""`gateway-core check` against cores that reply as the test says."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway_contract.contract import Command
from gateway_contract.core.configuration import AmendConfiguration, ListArchive, RestoreRevision
from gateway_contract.core.interface import CORE, REQUIRED
from gateway_contract.core.jobs import ListJobs
from gateway_contract.core.sessions import ListSessions
from gateway_contract.varlink.client import Client
from gateway_contract.varlink.dispatcher import Dispatcher, Handler, Identity, ServedInterface
from gateway_contract.varlink.protocol import ErrorReply
from gateway_contract.varlink.server import Server
from gateway_core.commands.check import CannotCheck, Findings, check_core, make_calls

HEALTH = {
    "uptime_seconds": 1,
    "active_sessions": 0,
    "stale_sessions": 0,
    "unavailable_sources": [],
    "product": "p",
    "version": "1",
}


class AnyParameters(msgspec.Struct):
    """Whatever the check sends."""


class HasOne:
    """A reply with one record, which has every id."""

    id = revision = 1

    @property
    def sessions(self) -> list["HasOne"]:
        return [self]

    jobs = revisions = sessions


@contextmanager
def core_that(
    tmp_path: Path, *, declares: str | None = None, name: str = CORE.name, **replies: Callable[[], Any]
) -> Iterator[Client]:
    """A client of a core with these methods, which declares them or the methods of this text."""
    text = "\n".join(f"method {method}() -> ()" for method in replies) if declares is None else declares
    methods = {
        method: Handler(AnyParameters, lambda _, reply=reply: reply()) for method, reply in replies.items()
    }
    interface = ServedInterface(name, methods, lambda: text)
    server = Server(tmp_path / "core.sock", Dispatcher(Identity("v", "small", "2.0", "u"), [interface]))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with closing(Client(tmp_path / "core.sock", timeout=5)) as client:
            yield client
    finally:
        server.close()
        thread.join(10)


def findings(tmp_path: Path, **replies: Callable[[], Any]) -> Findings:
    with core_that(tmp_path, **replies) as client:
        return check_core(client, tmp_path / "core.sock")


def test_it_calls_each_method_that_only_reads_and_no_other() -> None:
    records = dict.fromkeys((ListSessions, ListJobs, ListArchive), HasOne())
    called = [type(call) for call in make_calls(records)]
    changing = {
        *(method for method in CORE.methods if issubclass(method, Command)),
        *(AmendConfiguration, RestoreRevision),
    }
    assert len(called) == len(set(called))
    assert set(called) == set(CORE.methods) - changing
    # Without a record it asks for none.
    names = {type(call).__name__ for call in make_calls({})}
    assert not names & {"GetSession", "WatchTraffic", "GetJob", "GetArchivedRevision"}


def test_what_a_core_does_not_declare_is_missing_in_the_order_of_the_interface(tmp_path: Path) -> None:
    found = findings(tmp_path, GetHealth=lambda: HEALTH)
    assert found.product == "small 2.0"
    assert found.checked == ["GetHealth"]
    names = [method.__name__ for method in CORE.methods if method.__name__ != "GetHealth"]
    required = {method.__name__ for method in REQUIRED}
    assert found.required == [name for name in names if name in required]
    assert found.optional == [name for name in names if name not in required]
    assert not found.is_usable


def test_a_method_that_is_declared_and_not_found_is_missing(tmp_path: Path) -> None:
    text = "method GetHealth() -> ()\n  method GetBgpSummary () -> ()\n# method ListJobs() -> ()"
    with core_that(tmp_path, declares=text) as client:
        found = check_core(client, tmp_path / "core.sock")
    assert found.declared == {"GetHealth", "GetBgpSummary"}
    assert found.checked == []
    assert {"GetHealth", "GetBgpSummary"} <= set(found.required)


def test_each_wrong_reply_is_told(tmp_path: Path) -> None:
    def refused() -> Any:
        raise ErrorReply.of(f"{CORE.name}.InternalError")

    fault = {"kind": "vlan", "object": "x", "session_id": None, "reason": "r", "since": 1}
    page = {"faults": [fault] * 11, "count": 11, "total": 11, "next_cursor": None}
    found = findings(
        tmp_path,
        GetHealth=lambda: {**HEALTH, "active_sessions": "many"},
        GetStatistics=refused,
        CheckAccess=lambda: {"enabled": True, "users": [], "version": 1},
        ListFaults=lambda: page,
        NoSuchMethod=dict,
    )
    assert "active_sessions" in found.wrong.pop("GetHealth")
    assert found.wrong == {
        "GetStatistics": "it replies with the error org.gatewayapi.core.InternalError",
        "CheckAccess": "its version is not the modification time of the socket",
        "ListFaults": "a page of at most 10 records has 11",
        "a method that does not exist": "no error, and not org.varlink.service.MethodNotFound",
    }


def test_a_daemon_with_another_interface_cannot_be_checked(tmp_path: Path) -> None:
    with (
        core_that(tmp_path, name="org.example.other") as client,
        pytest.raises(CannotCheck, match=r"small has no interface org.gatewayapi.core, only "),
    ):
        check_core(client, tmp_path / "core.sock")
