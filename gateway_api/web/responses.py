"""What views answer, marked at each of them for the OpenAPI document. A view without a mark isn't in it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gateway_api.base.fields import Schema
from gateway_api.web.envelope import JSON

View = TypeVar("View", bound=Callable[..., Any])

EVENT_STREAM = "text/event-stream"

_MARK = "__answers__"


@dataclass(frozen=True)
class Answers:
    """`schemas` are those of the answer, of which one fits: of the envelope's data, unless it is `bare`.
    None of them: the data is null, or any text. `events` are those of the data of a stream's events, by their
    names. `headers` are names besides those that every answer has. `conditional`: a client who names the
    ETag has the whole answer, so that 304 is enough. `errors` are statuses besides those that
    every view with its access and its request has."""

    schemas: tuple[type[Schema], ...] = ()
    status: int = 200
    media_type: str = JSON
    bare: bool = False
    events: Mapping[str, type[Schema]] = field(default_factory=dict)
    headers: tuple[str, ...] = ()
    errors: tuple[int, ...] = ()
    conditional: bool = True


def data(
    *schemas: type[Schema],
    status: int = 200,
    headers: tuple[str, ...] = (),
    errors: tuple[int, ...] = (),
    conditional: bool = True,
) -> Callable[[View], View]:
    """An envelope."""
    return _mark(Answers(schemas, status, headers=headers, errors=errors, conditional=conditional))


def document(
    schema: type[Schema], *, headers: tuple[str, ...] = (), errors: tuple[int, ...] = ()
) -> Callable[[View], View]:
    """JSON without an envelope."""
    return _mark(Answers((schema,), bare=True, headers=headers, errors=errors))


def text(media_type: str, *, headers: tuple[str, ...] = ()) -> Callable[[View], View]:
    """Something else than JSON."""
    return _mark(Answers(media_type=media_type, headers=headers))


def stream(events: Mapping[str, type[Schema]], *, errors: tuple[int, ...] = ()) -> Callable[[View], View]:
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
