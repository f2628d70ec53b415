"""What a command returns: a list, one record, or a text; each with what people and what programs get."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from gateway_api.cli.ctl.failures import ExitStatus
from gateway_api.cli.ctl.gateway import Record
from gateway_api.cli.ctl.texts import plain


@dataclass(frozen=True)
class ShownColumn:
    """A column of a table: a field of the record, or what `value` makes of it."""

    name: str
    title: str = ""
    value: Callable[[Any], str] = plain

    @property
    def head(self) -> str:
        return self.title or self.name.replace("_", " ").upper()

    def text(self, record: Record) -> str:
        return self.value(record.get(self.name))


class WholeRecord(ShownColumn):
    """A column made of the whole record."""

    def text(self, record: Record) -> str:
        return self.value(record)


@dataclass(frozen=True)
class ResultList:
    """Records, of which a table shows some columns, and the other formats everything."""

    records: Sequence[Record]
    columns: Sequence[ShownColumn]
    status: ExitStatus = ExitStatus.DONE


@dataclass(frozen=True)
class Sheet:
    """One record: a table shows a field per line. `shown` has how fields show that are not `plain`. `status`
    is the exit status of the command."""

    record: Record
    shown: Mapping[str, Callable[[Any], str]] = field(default_factory=dict)
    status: ExitStatus = ExitStatus.DONE

    @property
    def columns(self) -> list[ShownColumn]:
        return [ShownColumn(name, value=self.shown.get(name, plain)) for name in self.record]


@dataclass(frozen=True)
class Report:
    """A text for people, and the record that the other formats show. Lines that begin with + and - have the
    colours of a diff if `is_diff`. `status` is the exit status of the command."""

    text: str
    record: Any
    is_diff: bool = False
    status: ExitStatus = ExitStatus.DONE


Result: TypeAlias = ResultList | Sheet | Report
