"""The varlink server, spoken to in bytes over its socket."""

import itertools
import logging
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway_contract.varlink import server
from gateway_contract.varlink.dispatcher import (
    Dispatcher,
    Handler,
    Identity,
    NoParameters,
    ServedInterface,
    make_parameter_error,
)
from gateway_contract.varlink.protocol import MAX_CALL_BYTES, CallMessage, ErrorReply, MessageBuffer, encode
from gateway_contract.varlink.server import AlreadyServed, Server
from tests.support.stack import wait_for

INTERFACE = "org.example.test"
DESCRIPTION = f"# For tests.\ninterface {INTERFACE}\n\nmethod Echo(text: string) -> (text: string)\n"


class Window(msgspec.Struct, forbid_unknown_fields=True):
    limit: int


class EchoCall(msgspec.Struct, forbid_unknown_fields=True):
    text: str
    window: Window | None = None


class Numbers:
    """Three numbers, one in each part."""

    def parts(self) -> Iterator[dict[str, list[int]]]:
        return ({"numbers": [number]} for number in (1, 2, 3))

    def whole(self) -> dict[str, list[int]]:
        return {"numbers": [1, 2, 3]}


class Handlers:
    """What the tests' interface does."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.caller: socket.socket

    def interface(self) -> ServedInterface:
        methods = {
            "Echo": Handler(EchoCall, self.echo),
            "Nothing": Handler(NoParameters, lambda _: {}),
            "Fail": Handler(NoParameters, self.fail),
            "Refuse": Handler(NoParameters, self.refuse),
            "RefuseLimit": Handler(NoParameters, self.refuse_limit),
            "Big": Handler(NoParameters, lambda _: {"text": "x" * (1 << 20)}),
            "List": Handler(NoParameters, lambda _: Numbers()),
            "Count": Handler(NoParameters, self.count, streams=True),
            "First": Handler(NoParameters, self.count, streams=True, replies_once=True),
            "Look": Handler(NoParameters, self.look),
            "Odd": Handler(NoParameters, lambda _: {"odd": object()}),
        }
        return ServedInterface(INTERFACE, methods, lambda: DESCRIPTION)

    def echo(self, call: EchoCall) -> dict[str, str]:
        self.texts.append(call.text)
        return {"text": call.text}

    def count(self, _: NoParameters) -> Iterator[dict[str, int]]:
        self.texts.append("counted")
        return ({"number": number} for number in itertools.count())

    def look(self, _: NoParameters) -> dict[str, bool]:
        """Whether a reply waits for the caller."""
        return {"has_reply": bool(select.select([self.caller], [], [], 0)[0])}

    def fail(self, _: NoParameters) -> Any:
        raise RuntimeError("the handler broke")

    def refuse(self, _: NoParameters) -> Any:
        raise ErrorReply.of(f"{INTERFACE}.Refused", id=7)

    def refuse_limit(self, _: NoParameters) -> Any:
        raise make_parameter_error("window.limit")


class Caller:
    """A client that sends any bytes and reads replies one by one."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        # Connected before it has a timeout: then the kernel waits where the backlog is full.
        self.socket.connect(str(path))
        self.socket.settimeout(10)
        self._buffer = MessageBuffer(64 << 20)

    def __enter__(self) -> "Caller":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, method: str, oneway: bool = False, **parameters: Any) -> None:
        raw = msgspec.Raw(msgspec.json.encode(parameters))
        self.socket.sendall(encode(CallMessage(f"{INTERFACE}.{method}", raw, oneway=oneway)))

    def read(self) -> Any:
        """The next reply; None when the server has hung up."""
        while (message := self._buffer.next_message()) is None:
            data = self.socket.recv(1 << 16)
            if not data:
                return None
            self._buffer.feed(data)
        return msgspec.json.decode(message)

    def ask(self, method: str, **parameters: Any) -> Any:
        self.send(method, **parameters)
        return self.read()

    def is_cut(self) -> bool:
        try:
            return self.read() is None
        except ConnectionResetError:
            # What was sent and never read makes the kernel say it this way.
            return True


def dispatcher(handlers: Handlers) -> Dispatcher:
    return Dispatcher(Identity("vendor", "product", "1.0", "urn:example"), [handlers.interface()])


@contextmanager
def serving(path: Path, handlers: Handlers) -> Iterator[threading.Thread]:
    made = Server(path, dispatcher(handlers))
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    try:
        yield thread
    finally:
        made.close()
        thread.join(10)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "test.sock"


@pytest.fixture
def handlers() -> Handlers:
    return Handlers()


@pytest.fixture
def caller(path: Path, handlers: Handlers) -> Iterator[Caller]:
    with serving(path, handlers), Caller(path) as made:
        yield made


def invalid(name: str) -> Any:
    return {"error": "org.varlink.service.InvalidParameter", "parameters": {"parameter": name}}


def test_short_replies_to_pipelined_calls_come_together_in_order(caller: Caller, handlers: Handlers) -> None:
    calls = [CallMessage(f"{INTERFACE}.Echo", msgspec.Raw(b'{"text":"%d"}' % number)) for number in range(50)]
    calls.append(CallMessage(f"{INTERFACE}.Look"))
    handlers.caller = caller.socket
    caller.socket.sendall(b"".join(map(encode, calls)))
    assert [caller.read()["parameters"]["text"] for _ in range(50)] == [str(number) for number in range(50)]
    assert caller.read() == {"parameters": {"has_reply": False}}


def test_a_oneway_call_runs_and_gets_no_reply(caller: Caller, handlers: Handlers) -> None:
    # The first reply is sent before the calls that have none.
    calls = CallMessage(f"{INTERFACE}.Nothing"), CallMessage(f"{INTERFACE}.Fail", oneway=True)
    caller.socket.sendall(b"".join(map(encode, calls)))
    assert caller.read() == {"parameters": {}}
    caller.send("Echo", oneway=True, text="first")
    assert caller.ask("Echo", text="second") == {"parameters": {"text": "second"}}
    assert handlers.texts == ["first", "second"]


def test_a_wrong_parameter_is_named(caller: Caller) -> None:
    for parameters, name in (
        ({"text": 1}, "text"),
        ({"text": "a", "txt": "b"}, "txt"),
        ({"text": "a", "window": {}}, "window.limit"),
        ({"text": "a", "window": {"limit": msgspec.Raw(b"1" * 5000)}}, "window.limit"),
        ({"text": "a", "window": {"limit": 5, "offset": 1}}, "window.offset"),
    ):
        assert caller.ask("Echo", **parameters) == invalid(name)
    caller.socket.sendall(encode(CallMessage(f"{INTERFACE}.Echo", msgspec.Raw(b"[]"))))
    assert caller.read() == invalid("")


def test_an_error_that_a_handler_raises_on_purpose_reaches_the_caller(caller: Caller) -> None:
    assert caller.ask("Refuse") == {"error": f"{INTERFACE}.Refused", "parameters": {"id": 7}}
    assert caller.ask("RefuseLimit") == invalid("window.limit")


def test_an_error_in_a_handler_or_its_answer_is_an_internal_error_that_tells_nothing_and_is_logged(
    caller: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    for method in ("Fail", "Odd"):
        assert caller.ask(method) == {"error": f"{INTERFACE}.InternalError", "parameters": {}}
    records = [record for record in caplog.records if record.exc_info]
    assert records[0].getMessage() == f"{INTERFACE}.Fail failed with an internal error"
    assert caller.ask("Echo", text="a") == {"parameters": {"text": "a"}}


def test_a_reply_in_parts_comes_in_parts_to_a_call_for_more_alone(caller: Caller) -> None:
    more = (CallMessage(f"{INTERFACE}.{name}", more=True) for name in ("List", "Nothing"))
    caller.socket.sendall(b"".join(map(encode, more)))
    assert [caller.read() for _ in range(4)] == [
        {"parameters": {"numbers": [1]}, "continues": True},
        {"parameters": {"numbers": [2]}, "continues": True},
        {"parameters": {"numbers": [3]}},
        {"parameters": {}},
    ]
    assert caller.ask("List") == {"parameters": {"numbers": [1, 2, 3]}}


def test_a_stream_is_for_calls_for_more_or_its_first_reply_alone(caller: Caller, handlers: Handlers) -> None:
    assert caller.ask("Count") == {"error": "org.varlink.service.ExpectedMore", "parameters": {}}
    caller.send("Count", oneway=True)
    assert caller.ask("Nothing") == {"parameters": {}}
    assert handlers.texts == []
    assert caller.ask("First") == {"parameters": {"number": 0}}
    caller.socket.sendall(encode(CallMessage(f"{INTERFACE}.Count", more=True)))
    for number in range(3):
        assert caller.read() == {"parameters": {"number": number}, "continues": True}


def test_the_service_describes_itself_and_names_what_it_does_not_have(caller: Caller) -> None:
    def ask(method: str, parameters: bytes = b"{}") -> Any:
        caller.socket.sendall(encode(CallMessage(method, msgspec.Raw(parameters))))
        return caller.read()

    service = "org.varlink.service"
    about = {"vendor": "vendor", "product": "product", "version": "1.0", "url": "urn:example"}
    assert ask(f"{service}.GetInfo")["parameters"] == {**about, "interfaces": [INTERFACE, service]}
    described = ask(f"{service}.GetInterfaceDescription", b'{"interface":"%s"}' % INTERFACE.encode())
    assert described["parameters"] == {"description": DESCRIPTION}
    unknown = ask(f"{service}.GetInterfaceDescription", b'{"interface":"org.other"}')
    assert unknown["parameters"] == {"interface": "org.other"}
    for reply, error, parameters in (
        (ask(f"{INTERFACE}.Missing"), "MethodNotFound", {"method": "Missing"}),
        (ask("Echo"), "InterfaceNotFound", {"interface": ""}),
    ):
        assert reply == {"error": f"{service}.{error}", "parameters": parameters}


@pytest.mark.parametrize("garbage", [b"\0", b"hello\0", b"{}\0", b"x" * (MAX_CALL_BYTES + 1)], ids=len)
def test_garbage_closes_its_connection_and_no_other_after_the_replies_to_calls_before_it(
    caller: Caller, path: Path, garbage: bytes
) -> None:
    with Caller(path) as other:
        caller.send("Echo", text="a")
        assert caller.read() == {"parameters": {"text": "a"}}
        # The server may hang up before the last byte is sent.
        with suppress(BrokenPipeError, ConnectionResetError):
            caller.socket.sendall(encode(CallMessage(f"{INTERFACE}.Nothing")) + garbage)
        if len(garbage) < MAX_CALL_BYTES:
            assert caller.read() == {"parameters": {}}
            assert caller.is_cut()
        assert other.ask("Echo", text="a") == {"parameters": {"text": "a"}}


def test_a_caller_that_never_reads_blocks_no_other(
    path: Path, handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Far longer than the other caller waits.
    monkeypatch.setattr(server, "_SEND_TIMEOUT_SECONDS", 1000)
    with serving(path, handlers), Caller(path) as idle, Caller(path) as other:
        idle.socket.sendall(encode(CallMessage(f"{INTERFACE}.Big")) * 20)
        assert other.ask("Echo", text="a") == {"parameters": {"text": "a"}}


def test_closing_ends_the_thread_and_connections_and_the_socket(path: Path, handlers: Handlers) -> None:
    with ExitStack() as stack:
        with serving(path, handlers) as thread:
            caller = stack.enter_context(Caller(path))
            caller.ask("Nothing")
            assert thread.is_alive()
        assert caller.is_cut()
    assert not thread.is_alive()
    assert not path.exists()


def test_a_path_with_a_server_or_a_file_that_is_no_socket_is_left_alone(
    path: Path, handlers: Handlers
) -> None:
    with serving(path, handlers), pytest.raises(AlreadyServed):
        Server(path, dispatcher(handlers))
    path.write_text("configuration")
    with pytest.raises((OSError, AlreadyServed)), serving(path, handlers):
        pass
    assert path.read_text() == "configuration"


def test_a_removed_socket_is_there_again_once_no_other_server_has_taken_its_path(
    path: Path, handlers: Handlers, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(path, handlers):
        path.unlink()
        other = Handlers()
        with serving(path, other):
            wait_for("a look at the path", lambda: f"another process serves {path}" in caplog.text)
            with Caller(path) as caller:
                caller.ask("Echo", text="a")
        assert (handlers.texts, other.texts) == ([], ["a"])
        # The other one has removed its socket.
        wait_for("the socket", path.exists)
        assert path.stat().st_mode & 0o777 == 0o660
        with Caller(path) as caller:
            caller.ask("Echo", text="b")
        assert handlers.texts == ["b"]
    assert not path.exists()


def test_a_client_that_hangs_up_before_or_after_its_reply_is_no_fault(
    caller: Caller, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for method in ("Nothing", "Big"):
        with Caller(path) as leaving:
            leaving.send(method)
            if method == "Nothing":
                leaving.read()
    assert caller.ask("Echo", text="a") == {"parameters": {"text": "a"}}
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
