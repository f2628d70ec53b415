"""What a command returns: a list, one record, or a text; each with what people and what programs get."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

from gateway_api.cli.ctl.failures import ExitStatus
from gateway_api.cli.ctl.fields import shown
from gateway_api.client.gateway import Record


class Importance(IntEnum):
    """How long a column stays on a terminal that becomes narrower. Of two with the same importance, the left
    one stays longer."""

    #: Without it nobody knows which record this is. If a terminal has no room for all of these, the records
    #: stand one under the other.
    IDENTITY = 0
    HIGH = 1
    NORMAL = 2
    LOW = 3
    #: Only with `-o wide`, or if it is chosen.
    WIDE = 4


@dataclass(frozen=True)
class ShownColumn:
    """A column of a table: a field of the record. Its label and its texts are those of the field, unless
    `title` and `value` say otherwise. One that `wraps` has sentences, which may take several lines."""

    name: str
    title: str = ""
    value: Callable[[Any], str] | None = None
    importance: Importance = Importance.NORMAL
    wraps: bool = False

    @property
    def label(self) -> str:
        return self.title or shown(self.name).label

    @property
    def head(self) -> str:
        return self.label.upper()

    @property
    def word(self) -> str:
        """The head as the user types it."""
        return _word(self.label)

    def is_called(self, name: str) -> bool:
        """Whether the user means it: by its head, or by the name of its field."""
        return _word(name) in {self.word, _word(self.name)}

    def text(self, record: Record) -> str:
        return (self.value or shown(self.name).text)(record.get(self.name))


def _word(text: str) -> str:
    return re.sub(r"[\W_]+", "_", text.strip().lower())


class WholeRecord(ShownColumn):
    """A column that `value` makes of the whole record."""

    def text(self, record: Record) -> str:
        return (self.value or shown(self.name).text)(record)


@dataclass(frozen=True)
class ResultList:
    """Records, of which a table shows some columns, and the other formats everything."""

    records: Sequence[Record]
    columns: Sequence[ShownColumn]
    status: ExitStatus = ExitStatus.DONE


@dataclass(frozen=True)
class Sheet:
    """One record: a table shows a field per line, or those of `shown`. `status` is the exit status of the
    command."""

    record: Record
    status: ExitStatus = ExitStatus.DONE
    shown: Sequence[ShownColumn] = ()

    @property
    def columns(self) -> Sequence[ShownColumn]:
        fields = [ShownColumn(name, importance=Importance.IDENTITY, wraps=True) for name in self.record]
        return self.shown or fields


@dataclass(frozen=True)
class Report:
    """A text for people, below the `table` if there is one, and the record that the other formats show. Lines
    that begin with + and - have the colours of a diff if `is_diff`. `status` is the exit status of the
    command."""

    text: str
    record: Any
    is_diff: bool = False
    status: ExitStatus = ExitStatus.DONE
    table: ResultList | None = None


Result: TypeAlias = ResultList | Sheet | Report
