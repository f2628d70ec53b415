"""What views answer, marked at each of them for the OpenAPI document. A view without a mark isn't in it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from gateway_api.web.envelope import JSON

View = TypeVar("View", bound=Callable[..., Any])

EVENT_STREAM = "text/event-stream"

_MARK = "__answers__"


@dataclass(frozen=True)
class Answers:
    """`records` are the possible ones of the response: of the envelope's data, unless it is `bare`. Without
    any, the data is null, or the body any text. `events` are the records of a stream's events, by the events'
    names. `headers` are names besides those that every response has. `conditional`: a client that names the
    ETag gets 304. `errors` are statuses besides those of every view with this access and request."""

    records: tuple[type[msgspec.Struct], ...] = ()
    status: int = 200
    media_type: str = JSON
    bare: bool = False
    events: Mapping[str, type[msgspec.Struct]] = field(default_factory=dict)
    headers: tuple[str, ...] = ()
    errors: tuple[int, ...] = ()
    conditional: bool = True


def data(
    *records: type[msgspec.Struct],
    status: int = 200,
    headers: tuple[str, ...] = (),
    errors: tuple[int, ...] = (),
    conditional: bool = True,
) -> Callable[[View], View]:
    """An envelope."""
    return _mark(Answers(records, status, headers=headers, errors=errors, conditional=conditional))


def document(
    record: type[msgspec.Struct], *, headers: tuple[str, ...] = (), errors: tuple[int, ...] = ()
) -> Callable[[View], View]:
    """JSON without an envelope."""
    return _mark(Answers((record,), bare=True, headers=headers, errors=errors))


def text(media_type: str, *, headers: tuple[str, ...] = ()) -> Callable[[View], View]:
    """Something else than JSON."""
    return _mark(Answers(media_type=media_type, headers=headers))


def stream(
    events: Mapping[str, type[msgspec.Struct]], *, errors: tuple[int, ...] = ()
) -> Callable[[View], View]:
    """Server-sent events, without an end."""
    return _mark(Answers(media_type=EVENT_STREAM, events=events, errors=errors))


def answered_by(view: Callable[..., Any]) -> Answers | None:
    """The mark of a view."""
    mark: Answers | None = getattr(view, _MARK, None)
    return mark


def _mark(answers: Answers) -> Callable[[View], View]:
    def decorate(view: View) -> View:
        setattr(view, _MARK, answers)
        return view

    return decorate
