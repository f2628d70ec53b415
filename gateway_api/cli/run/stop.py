"""Whether somebody has asked us to stop."""

import signal
from typing import ClassVar


class Stop:
    """Whether somebody has asked us to stop. The signals are blocked and waited for: a handler would
    run in the middle of whatever is running."""

    _SIGNALS: ClassVar = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, self._SIGNALS)
        self._asked = False

    def wait(self, seconds: float) -> bool:
        """True as soon as we are to stop, False after so many seconds."""
        self._asked = self._asked or signal.sigtimedwait(self._SIGNALS, seconds) is not None
        return self._asked

    def is_set(self) -> bool:
        return self.wait(0)
