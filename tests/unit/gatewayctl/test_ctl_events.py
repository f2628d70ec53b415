"""The end of `gatewayctl events` by a signal."""

import io
import signal
from unittest.mock import patch

import click
import pytest

from gatewayctl.commands.events import End


class Connection(io.RawIOBase):
    """A signal comes while Python frees it, and drops what its handler raises."""

    def __init__(self, end: End, number: signal.Signals) -> None:
        self._end, self._number = end, number

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._end._handle(self._number, None)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "number, error", [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, click.exceptions.Exit)]
)
def test_a_signal_ends_the_following_while_a_lost_connection_is_freed(
    number: signal.Signals, error: type[BaseException]
) -> None:
    with patch("signal.signal") as installed:
        end = End()
        end.install()
    assert (number, end._handle) in [call.args for call in installed.call_args_list]
    end.look()
    connection = Connection(end, number)
    del connection
    with pytest.raises(error):
        end.look()
