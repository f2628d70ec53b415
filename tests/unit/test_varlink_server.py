"""The varlink server, spoken to in bytes over its socket."""

import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway_api.wire.varlink.dispatcher import (
    Dispatcher,
    Handler,
    Identity,
    NoParameters,
    ServedInterface,
    invalid_parameter,
)
from gateway_api.wire.varlink.protocol import REQUEST_CAP, CallMessage, ErrorReply, MessageBuffer, encode
from gateway_api.wire.varlink.server import AlreadyServed, Server
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

    def interface(self) -> ServedInterface:
        methods = {
            "Echo": Handler(EchoCall, self.echo),
            "Nothing": Handler(NoParameters, lambda _: {}),
            "Fail": Handler(NoParameters, self.fail),
            "Refuse": Handler(NoParameters, self.refuse),
            "RefuseLimit": Handler(NoParameters, self.refuse_limit),
            "Big": Handler(NoParameters, lambda _: {"text": "x" * (1 << 20)}),
            "List": Handler(NoParameters, lambda _: Numbers()),
            "Odd": Handler(NoParameters, lambda _: {"odd": object()}),
        }
        return ServedInterface(INTERFACE, methods, lambda: DESCRIPTION)

    def echo(self, call: EchoCall) -> dict[str, str]:
        self.texts.append(call.text)
        return {"text": call.text}

    def fail(self, _: NoParameters) -> Any:
        raise RuntimeError("the handler broke")

    def refuse(self, _: NoParameters) -> Any:
        raise ErrorReply.of(f"{INTERFACE}.Refused", id=7)

    def refuse_limit(self, _: NoParameters) -> Any:
        raise invalid_parameter("window.limit")


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
    server = Server(path, dispatcher(handlers))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield thread
    finally:
        server.close()
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


def test_pipelined_calls_are_answered_in_their_order(caller: Caller) -> None:
    calls = (
        CallMessage(f"{INTERFACE}.Echo", msgspec.Raw(b'{"text":"%d"}' % number)) for number in range(500)
    )
    caller.socket.sendall(b"".join(map(encode, calls)))
    assert [caller.read()["parameters"]["text"] for _ in range(500)] == [str(number) for number in range(500)]


def test_short_replies_to_pipelined_calls_come_together(caller: Caller) -> None:
    caller.socket.sendall(encode(CallMessage(f"{INTERFACE}.Nothing")) * 2)
    assert caller.socket.recv(1 << 16).count(b"\0") == 2


def test_a_call_before_a_oneway_call_is_answered(caller: Caller) -> None:
    oneway = encode(CallMessage(f"{INTERFACE}.Nothing", oneway=True))
    caller.socket.sendall(encode(CallMessage(f"{INTERFACE}.Nothing")) + oneway)
    assert caller.read() == {"parameters": {}}


def test_a_call_that_comes_in_pieces_is_answered(caller: Caller) -> None:
    for byte in encode(CallMessage(f"{INTERFACE}.Nothing")):
        caller.socket.sendall(bytes([byte]))
    assert caller.read() == {"parameters": {}}


def test_a_oneway_call_runs_and_gets_no_reply(caller: Caller, handlers: Handlers) -> None:
    caller.send("Echo", oneway=True, text="first")
    assert caller.ask("Echo", text="second") == {"parameters": {"text": "second"}}
    assert handlers.texts == ["first", "second"]


def test_a_oneway_call_that_fails_gets_no_reply(caller: Caller) -> None:
    caller.send("Fail", oneway=True)
    assert caller.ask("Echo", text="next") == {"parameters": {"text": "next"}}


def test_a_wrong_parameter_is_named(caller: Caller) -> None:
    for parameters, name in (
        ({}, "text"),
        ({"text": 1}, "text"),
        ({"text": None}, "text"),
        ({"text": "a", "txt": "b"}, "txt"),
        ({"text": "a", "window": 5}, "window"),
        ({"text": "a", "window": {}}, "window.limit"),
        ({"text": "a", "window": {"limit": "5"}}, "window.limit"),
        ({"text": "a", "window": {"limit": True}}, "window.limit"),
        ({"text": "a", "window": {"limit": 5, "offset": 1}}, "window.offset"),
    ):
        assert caller.ask("Echo", **parameters) == invalid(name)


def test_a_number_of_5000_digits_is_a_wrong_parameter(caller: Caller) -> None:
    call = b'{"method":"%s.Echo","parameters":{"text":"a","window":{"limit":%s}}}\0'
    caller.socket.sendall(call % (INTERFACE.encode(), b"1" * 5000))
    assert caller.read() == invalid("window.limit")


def test_parameters_that_are_an_array_are_answered_as_invalid(caller: Caller) -> None:
    caller.socket.sendall(b'{"method":"%s.Echo","parameters":[]}\0' % INTERFACE.encode())
    assert caller.read()["error"] == "org.varlink.service.InvalidParameter"


def test_a_handler_refuses_a_parameter_as_the_server_does(caller: Caller) -> None:
    assert caller.ask("RefuseLimit") == invalid("window.limit")


def test_an_error_that_a_handler_raises_on_purpose_reaches_the_caller(caller: Caller) -> None:
    assert caller.ask("Refuse") == {"error": f"{INTERFACE}.Refused", "parameters": {"id": 7}}


def test_an_exception_in_a_handler_is_an_internal_error_that_tells_nothing(caller: Caller) -> None:
    assert caller.ask("Fail") == {"error": f"{INTERFACE}.InternalError", "parameters": {}}


def test_an_exception_in_a_handler_is_logged_with_its_traceback(
    caller: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    caller.ask("Fail")
    records = [record for record in caplog.records if record.exc_info]
    assert [record.getMessage() for record in records] == [f"cannot reply to {INTERFACE}.Fail"]


def test_after_an_exception_in_a_handler_the_connection_goes_on(caller: Caller) -> None:
    caller.ask("Fail")
    assert caller.ask("Echo", text="a") == {"parameters": {"text": "a"}}


def test_a_reply_in_parts_comes_whole_to_a_plain_call(caller: Caller) -> None:
    assert caller.ask("List") == {"parameters": {"numbers": [1, 2, 3]}}


def test_a_reply_in_parts_comes_in_parts_to_a_call_for_more(caller: Caller) -> None:
    caller.socket.sendall(encode(CallMessage(f"{INTERFACE}.List", more=True)))
    assert [caller.read() for _ in range(3)] == [
        {"parameters": {"numbers": [1]}, "continues": True},
        {"parameters": {"numbers": [2]}, "continues": True},
        {"parameters": {"numbers": [3]}},
    ]
    assert caller.ask("Echo", text="a") == {"parameters": {"text": "a"}}


def test_a_call_for_more_of_a_plain_method_gets_its_only_reply(caller: Caller) -> None:
    caller.socket.sendall(encode(CallMessage(f"{INTERFACE}.Nothing", more=True)))
    assert caller.read() == {"parameters": {}}


def test_an_answer_that_cannot_be_encoded_is_an_internal_error(handlers: Handlers) -> None:
    (reply,) = dispatcher(handlers).replies(encode(CallMessage(f"{INTERFACE}.Odd"))[:-1])
    assert reply is not None
    assert msgspec.json.decode(reply[:-1])["error"] == f"{INTERFACE}.InternalError"


def test_an_unknown_method_is_named(caller: Caller) -> None:
    assert caller.ask("Missing") == {
        "error": "org.varlink.service.MethodNotFound",
        "parameters": {"method": "Missing"},
    }


@pytest.mark.parametrize(("method", "interface"), [("org.other.Echo", "org.other"), ("Echo", ""), ("", "")])
def test_an_unknown_interface_is_named(caller: Caller, method: str, interface: str) -> None:
    caller.socket.sendall(encode(CallMessage(method)))
    assert caller.read() == {
        "error": "org.varlink.service.InterfaceNotFound",
        "parameters": {"interface": interface},
    }


def test_the_service_tells_who_it_is(caller: Caller) -> None:
    caller.socket.sendall(encode(CallMessage("org.varlink.service.GetInfo")))
    assert caller.read()["parameters"] == {
        "vendor": "vendor",
        "product": "product",
        "version": "1.0",
        "url": "urn:example",
        "interfaces": [INTERFACE, "org.varlink.service"],
    }


def test_the_service_gives_the_text_of_an_interface(caller: Caller) -> None:
    raw = msgspec.Raw(b'{"interface":"%s"}' % INTERFACE.encode())
    caller.socket.sendall(encode(CallMessage("org.varlink.service.GetInterfaceDescription", raw)))
    assert caller.read() == {"parameters": {"description": DESCRIPTION}}


@pytest.mark.parametrize(
    "garbage", [b"\0", b"hello\0", b"[]\0", b"{}\0", b"\xff\xfe\0", b"[" * 20_000 + b"\0"]
)
def test_garbage_closes_its_connection_and_no_other(caller: Caller, path: Path, garbage: bytes) -> None:
    with Caller(path) as other:
        caller.socket.sendall(garbage)
        assert caller.is_cut()
        assert other.ask("Echo", text="a") == {"parameters": {"text": "a"}}


def test_calls_before_garbage_are_answered(caller: Caller) -> None:
    caller.send("Echo", text="a")
    caller.socket.sendall(b"hello\0")
    assert caller.read() == {"parameters": {"text": "a"}}
    assert caller.is_cut()


def test_a_call_of_exactly_one_mebibyte_is_answered(caller: Caller) -> None:
    room = REQUEST_CAP - len(encode(CallMessage(f"{INTERFACE}.Echo", msgspec.Raw(b'{"text":""}')))) + 1
    assert len(caller.ask("Echo", text="x" * room)["parameters"]["text"]) == room


def test_a_call_of_over_one_mebibyte_closes_its_connection(caller: Caller) -> None:
    room = REQUEST_CAP - len(encode(CallMessage(f"{INTERFACE}.Echo", msgspec.Raw(b'{"text":""}')))) + 2
    try:
        caller.send("Echo", text="x" * room)
    except (BrokenPipeError, ConnectionResetError):
        # Cut before the last of it was sent.
        return
    assert caller.is_cut()


def test_a_caller_that_never_reads_blocks_no_other(caller: Caller, path: Path) -> None:
    caller.socket.sendall(encode(CallMessage(f"{INTERFACE}.Big")) * 20)
    with Caller(path) as other:
        began = time.monotonic()
        assert other.ask("Echo", text="a") == {"parameters": {"text": "a"}}
        # Less than who never reads is waited for.
        assert time.monotonic() - began < 5


def test_a_caller_that_goes_before_its_answer_harms_no_other(caller: Caller, path: Path) -> None:
    with Caller(path) as leaving:
        leaving.send("Big")
    assert caller.ask("Echo", text="a") == {"parameters": {"text": "a"}}


def test_a_second_server_at_a_served_socket_is_refused(
    caller: Caller, path: Path, handlers: Handlers
) -> None:
    with pytest.raises(AlreadyServed):
        Server(path, dispatcher(handlers))
    assert caller.ask("Echo", text="a") == {"parameters": {"text": "a"}}


def test_a_socket_whose_server_is_too_busy_to_accept_counts_as_served(path: Path, handlers: Handlers) -> None:
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as filler:
        listener.bind(str(path))
        listener.listen(0)
        filler.connect(str(path))
        with pytest.raises(AlreadyServed):
            Server(path, dispatcher(handlers))


def test_a_socket_that_a_dead_server_left_is_replaced(path: Path, handlers: Handlers) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with serving(path, handlers), Caller(path) as caller:
        assert caller.ask("Echo", text="a") == {"parameters": {"text": "a"}}


def test_a_file_that_is_no_socket_is_left_alone(path: Path, handlers: Handlers) -> None:
    path.write_text("configuration")
    with pytest.raises((OSError, AlreadyServed)), serving(path, handlers):
        pass
    assert path.read_text() == "configuration"


def test_the_socket_is_for_its_owner_and_group_alone(caller: Caller, path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o660


def test_a_socket_whose_file_is_removed_is_there_again(path: Path, handlers: Handlers) -> None:
    with serving(path, handlers):
        path.unlink()
        wait_for("the socket", path.exists)
        assert path.stat().st_mode & 0o777 == 0o660
        with Caller(path) as caller:
            assert caller.ask("Echo", text="a") == {"parameters": {"text": "a"}}
    assert not path.exists()


def test_a_path_that_another_server_has_taken_stays_its_own(
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
        with Caller(path) as caller:
            caller.ask("Echo", text="b")
        assert handlers.texts == ["b"]


def test_closing_ends_the_serving_thread(path: Path, handlers: Handlers) -> None:
    with serving(path, handlers) as thread:
        assert thread.is_alive()
    assert not thread.is_alive()


def test_closing_cuts_the_connections(path: Path, handlers: Handlers) -> None:
    with ExitStack() as stack:
        with serving(path, handlers):
            caller = stack.enter_context(Caller(path))
            caller.ask("Nothing")
        assert caller.is_cut()


def test_closing_removes_the_socket(path: Path, handlers: Handlers) -> None:
    with serving(path, handlers):
        assert path.exists()
    assert not path.exists()


def test_after_a_client_hung_up_the_log_has_no_error(
    path: Path, handlers: Handlers, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(path, handlers):
        with Caller(path) as caller:
            caller.ask("Nothing")
        with Caller(path) as caller:
            caller.ask("Nothing")
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
