"""Headers: those that requests may have, and those of every response."""

import re

from flask import Flask, Response, request

from gateway_api.base.http import REQUEST_ID, guards
from gateway_api.events.broadcast import EventId, parse_id
from gateway_api.web.request import current
from gateway_contract.base.errors import Invalid, Problem

#: An entity tag (RFC 9110 section 8.8.3), and a list of at least one (section 5.6.1).
_TAG = r'(?:W/)?"[!#-~\x80-\xff]*"'
ENTITY_TAGS = rf"[ \t,]*{_TAG}(?:[ \t]*,[ \t,]*{_TAG})*[ \t,]*"
_ANY_TAG = "*"


def last_event_id() -> EventId | None:
    """Return the id of the last event that the client received. An invalid one is the same as one that is no
    longer held: after an error an event source would never connect again."""
    text = request.headers.get("Last-Event-ID", "")
    try:
        return parse_id(text) if text else None
    except ValueError:
        return EventId("unknown", 0)


def if_match() -> list[str] | None:
    """Return the entity tags of which one must be current, or None for any (RFC 9110 section 13.1.1). Raises
    Invalid for a malformed header: it would never match, and the client would not know why."""
    text = request.headers.get("If-Match", _ANY_TAG).strip()
    if text == _ANY_TAG:
        return None
    if not re.fullmatch(ENTITY_TAGS, text):
        raise Invalid(Problem("If-Match", "invalid", "must be entity tags in double quotes, or *"))
    # Weak ones never match.
    return [tag.strip('"') for tag in re.findall(_TAG, text) if not tag.startswith("W/")]


def weak_tag_reason() -> str | None:
    """Why If-Match of the current request can match nothing: all its entity tags are weak. None otherwise."""
    if if_match() != []:
        return None
    return (
        "If-Match has a weak entity tag (W/), which never matches (RFC 9110 section 13.1.1); a proxy may "
        "have made it weak, for example to compress the response. Send the tag without W/"
    )


def has_current(etag: str | None) -> bool:
    """Return whether the client has the content with this entity tag (RFC 9110 section 13.1.2)."""
    return etag is not None and request.if_none_match.contains_weak(etag)


def install(app: Flask) -> None:
    """To be called last: the audit log and the metrics get the final status."""

    @app.after_request
    def _complete(response: Response) -> Response:
        """Add the headers of every response, and make it 304 if the client has it."""
        request = current()
        every = {REQUEST_ID: request.id, **guards(tls=request.is_secure)}
        if "Cache-Control" in response.headers:
            del every["Cache-Control"]
        response.headers.extend(every)
        is_read = response.status_code == 200 and request.method in ("GET", "HEAD")
        if is_read and request.is_conditional and has_current(response.get_etag()[0]):
            # RFC 9110 section 15.4.5. werkzeug removes the headers that it must not have.
            response.status_code = 304
        return response
