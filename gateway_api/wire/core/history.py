"""The core's contract for the history of sessions, which the API keeps."""

from typing import Annotated

from gateway_api.wire.configuration import History
from gateway_api.wire.contract import Method, Record, about


class HistoryLimits(Record, frozen=True):
    days: Annotated[int, about("Days after its end that a session is kept.", 90, minimum=1)]
    mebibytes: Annotated[int, about("Size of the history; the oldest sessions go first.", 1024, minimum=16)]


#: Where the configuration has none.
DEFAULT_LIMITS = HistoryLimits(History.days, History.mebibytes)


class GetHistoryLimits(Method[HistoryLimits], frozen=True):
    """The limits of the history of sessions in the running configuration."""
