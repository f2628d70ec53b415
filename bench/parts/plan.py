"""What the parts share: for how long they measure, and where their files are."""

from dataclasses import dataclass
from pathlib import Path

from bench.pairs import Effort


@dataclass(frozen=True)
class Plan:
    """`folder` is temporary. `many` and `very_many` are the numbers of sessions of large gateways, `clients`
    that of the event stream's clients: 10,000, 100,000 and 5,000, unless the run is short."""

    folder: Path
    effort: Effort
    many: int
    very_many: int
    clients: int
    #: Messages of each webhook.
    messages: int
