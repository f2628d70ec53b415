"""Calls the methods of a service by its contract, with errors of `base/errors.py` in place of the wire's."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

import msgspec

from gateway_contract.base.errors import GatewayApiError, Invalid, NotFound, Problem
from gateway_contract.contract import Contract, Method, reply_of
from gateway_contract.varlink.client import Client, Unreachable
from gateway_contract.varlink.protocol import ErrorReply, Reply

R = TypeVar("R")
T = TypeVar("T")


def decode(type: type[T], raw: msgspec.Raw, unavailable: type[GatewayApiError]) -> T:
    """Return a part of a reply as a value. Raises `unavailable`."""
    try:
        return msgspec.json.decode(raw, type=type)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise unavailable(f"a reply breaks the contract: {error}") from error


class ContractClient:
    """Calls the service with this `contract`. Methods raise `unavailable` without a reply that keeps to the
    contract, and what `translated` makes of an error. `timeout` is in seconds; None is the client's own."""

    contract: ClassVar[Contract]
    unavailable: ClassVar[type[GatewayApiError]]

    def __init__(self, client: Client) -> None:
        self._client = client

    def reply(self, call: Method[R], *, timeout: float | None = None) -> R:
        reply: type[R] = reply_of(type(call))
        return decode(reply, self.raw(call, timeout=timeout), self.unavailable)

    def raw(self, call: Method[Any], *, timeout: float | None = None) -> msgspec.Raw:
        """Return the whole reply, unparsed."""
        with self._errors_of(call):
            (reply,) = self._replies(call, timeout=timeout)
            return reply.result()

    def follow(self, call: Method[R]) -> Iterator[R]:
        """The replies of a method that streams. Ends with `unavailable`, CoreLacksMethod or NotFound; at the
        latest when no reply came for the `silence` of the method."""
        try:
            with self._errors_of(call):
                for raw in self._client.stream(*self._named(call), silence=call.silence):
                    yield decode(reply_of(type(call)), raw, self.unavailable)
        except GatewayApiError as error:
            if isinstance(error, self.unavailable | NotFound):
                raise
            raise self.unavailable(str(error)) from error

    def translated(self, error: Unreachable | ErrorReply, call: Method[Any]) -> GatewayApiError:
        """Return the failure of a call as an error of `base/errors.py`."""
        return self.unavailable(str(error))

    @contextmanager
    def _errors_of(self, call: Method[Any]) -> Iterator[None]:
        try:
            yield
        except (Unreachable, ErrorReply) as error:
            raise self.translated(error, call) from error
        except RecursionError as error:
            # The decoder allows a little more depth.
            raise Invalid(Problem("", "invalid", "must not be nested as deeply")) from error

    def _replies(self, call: Method[Any], *, timeout: float | None = None) -> list[Reply]:
        return self._client.exchange(self._named(call), at_once=call.comes_at_once, timeout=timeout)

    def _named(self, call: Method[Any]) -> tuple[str, Method[Any]]:
        return self.contract.method(type(call)), call
