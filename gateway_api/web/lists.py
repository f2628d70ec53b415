"""Views of lists. Requests for the same whole list share one."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import msgspec
from flask import request

from gateway_api.core_client.commands import Daemon
from gateway_api.web import headers, parse, responses
from gateway_api.web.schemas.queries import ListQuery
from gateway_api.web.services import daemon, parts, settle

_View = Callable[..., Any]


def query(
    schema: type[ListQuery], version: Callable[[Daemon], str | None] | None = None
) -> Callable[[_View], _View]:
    """As `parse.query`. Equal requests without a page at the same time share one response body. `version`
    asks the core for the version of the list: requests share the body until there is another version, and a
    client that has it gets 304. It may return None for "not known"."""

    def decorate(view: _View) -> _View:
        @parse.query(schema)
        @wraps(view)
        def shared(loaded: dict[str, Any]) -> Any:
            if loaded["page"] is not None or schema.is_short(loaded["filter"]):
                return view(loaded)
            tag = None
            # Nobody repeats a search.
            if version is not None and "search" not in loaded["filter"]:
                # Before the list: one that is newer than its version does no harm.
                current = version(daemon())
                tag = None if current is None else responses.weak_tag(current)
            # Before the core makes a list that takes it long.
            settle()
            if headers.if_none_match(tag):
                return responses.unchanged(tag)
            key = (request.endpoint, msgspec.json.encode(loaded, order="sorted"))
            body, sent = parts().whole_lists.take(key, lambda: view(loaded).get_data(), tag)
            response = responses.encoded(body, tag=tag)
            response.call_on_close(sent)
            return response

        return shared

    return decorate
