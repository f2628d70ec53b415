"""The end of `gatewayctl events` by a signal."""

import io
import signal
from unittest.mock import patch

import click
import pytest

from gatewayctl.commands.events import SignalWatcher


class Connection(io.RawIOBase):
    """A signal comes while Python frees it, and drops what its handler raises."""

    def __init__(self, signals: SignalWatcher, number: signal.Signals) -> None:
        self._end, self._number = signals, number

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._end._store_signal(self._number, None)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "number, error", [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, click.exceptions.Exit)]
)
def test_a_signal_ends_the_following_while_a_lost_connection_is_freed(
    number: signal.Signals, error: type[BaseException]
) -> None:
    with patch("signal.signal") as installed:
        signals = SignalWatcher()
    assert (number, signals._store_signal) in [call.args for call in installed.call_args_list]
    signals.check()
    connection = Connection(signals, number)
    del connection
    with pytest.raises(error):
        signals.check()
