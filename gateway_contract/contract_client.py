"""Client base class for a service with a contract. Errors on the wire become exceptions of
`base/errors.py`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

import msgspec

from gateway_contract.base.errors import GatewayApiError, Invalid, NotFound, Problem
from gateway_contract.contract import Contract, Method, get_reply_type
from gateway_contract.varlink.client import Client, Unreachable
from gateway_contract.varlink.protocol import ErrorReply, Reply

R = TypeVar("R")
T = TypeVar("T")


def decode(type: type[T], raw: msgspec.Raw, unavailable: type[GatewayApiError]) -> T:
    """Decode a part of a reply to a value of this type. Raises `unavailable` if the part does not have this
    type."""
    try:
        return msgspec.json.decode(raw, type=type)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise unavailable(f"a reply breaks the contract: {error}") from error


class ContractClient:
    """Client of the service that implements `contract`. Every method raises `unavailable` if there is no
    reply or if the reply breaks the contract. After an error reply, every method raises the result of
    `translate_error`. `timeout` is in seconds; None means the timeout of the varlink client."""

    contract: ClassVar[Contract]
    unavailable: ClassVar[type[GatewayApiError]]

    def __init__(self, client: Client) -> None:
        self._client = client

    def call(self, call: Method[R], *, timeout: float | None = None) -> R:
        """Send a call and return the reply."""
        reply: type[R] = get_reply_type(type(call))
        return decode(reply, self.call_raw(call, timeout=timeout), self.unavailable)

    def call_raw(self, call: Method[Any], *, timeout: float | None = None) -> msgspec.Raw:
        """Send a call and return the reply as unparsed JSON."""
        with self._translate_errors(call):
            (reply,) = self._replies(call, timeout=timeout)
            return reply.result()

    def follow(self, call: Method[R]) -> Iterator[R]:
        """Yield the replies of a method that streams. When the stream ends, or when no reply has come for the
        `silence` seconds of the method, raises NotFound if the service does not find the object of the call,
        and `unavailable` (or its subclass CoreLacksMethod) otherwise."""
        try:
            with self._translate_errors(call):
                for raw in self._client.stream(*self._wire_call(call), silence=call.silence):
                    yield decode(get_reply_type(type(call)), raw, self.unavailable)
        except GatewayApiError as error:
            if isinstance(error, self.unavailable | NotFound):
                raise
            raise self.unavailable(str(error)) from error

    def translate_error(self, error: Unreachable | ErrorReply, call: Method[Any]) -> GatewayApiError:
        """Return the exception of `base/errors.py` for a failed call."""
        return self.unavailable(str(error))

    @contextmanager
    def _translate_errors(self, call: Method[Any]) -> Iterator[None]:
        try:
            yield
        except (Unreachable, ErrorReply) as error:
            raise self.translate_error(error, call) from error
        except RecursionError as error:
            # The decoder allows a little more depth.
            raise Invalid(Problem("", "invalid", "must not be nested as deeply")) from error

    def _replies(self, call: Method[Any], *, timeout: float | None = None) -> list[Reply]:
        return self._client.exchange(self._wire_call(call), at_once=call.comes_at_once, timeout=timeout)

    def _wire_call(self, call: Method[Any]) -> tuple[str, Method[Any]]:
        return self.contract.method(type(call)), call
