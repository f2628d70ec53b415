"""Whole lists: one response body for all clients that request the same list at the same time."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import msgspec
from flask import Response, request

from gateway_api.web import envelope
from gateway_api.web.context import whole_lists

#: Filters that most of a list may match. Others find few records by an index.
_WIDE = {"type"}


def shared(view: Callable[[dict[str, Any]], Response]) -> Callable[[dict[str, Any]], Response]:
    """For a view with a query with a `page`: without one, equal requests share one body."""

    @wraps(view)
    def viewed(query: dict[str, Any]) -> Response:
        if query["page"] is not None or query.get("filter", {}).keys() - _WIDE:
            return view(query)
        key = (request.endpoint, msgspec.json.encode(query, order="sorted"))
        body, sent = whole_lists().take(key, lambda: view(query).get_data())
        response = envelope.encoded(body)
        response.call_on_close(sent)
        return response

    return viewed
