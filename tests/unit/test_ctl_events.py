"""The end of `gatewayctl events` by a signal."""

import io
import signal
from collections.abc import Iterator

import click
import pytest

from gateway_api.cli.ctl.commands.events import End


class Connection(io.RawIOBase):
    """A signal comes while Python frees it."""

    def __init__(self, number: signal.Signals) -> None:
        self._number = number

    def close(self) -> None:
        if not self.closed:
            super().close()
            signal.raise_signal(self._number)


@pytest.fixture
def end() -> Iterator[End]:
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = [signal.getsignal(each) for each in numbers]
    end = End()
    end.install()
    yield end
    for number, handler in zip(numbers, handlers, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize(
    "number, error", [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, click.exceptions.Exit)]
)
def test_a_signal_ends_it_while_a_lost_connection_is_freed(
    end: End, number: signal.Signals, error: type[BaseException]
) -> None:
    connection = Connection(number)
    del connection
    with pytest.raises(error):
        end.look()


def test_without_a_signal_it_goes_on(end: End) -> None:
    end.look()
