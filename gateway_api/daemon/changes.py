"""What was changed at the core by anybody but the API, as the core tells of it."""

from gateway_api.daemon.calls import Calls
from gateway_api.wire.core.configuration import ChangesReply, ListChanges


class ChangeLog:
    """Raises CoreUnavailable when the core can't be asked, or answers nonsense."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def after(self, log: str | None, sequence: int) -> ChangesReply:
        """What followed a change; for a log of another name, all that is held."""
        return self._calls.reply(ListChanges(log, sequence))
