"""The way of every request, from its query to its response: `respond`.

Each operation is a row (`web/operation.py`). No line of a view runs before its caller has access, and a
caller without access learns nothing about the rest of its request. Exceptions become responses in
`web/errors.py`.
"""

from typing import Any

from flask import Flask, Response

from gateway_api.web import parse, responses
from gateway_api.web.access import check
from gateway_api.web.operation import ApiOperation, Located, Passed, Routes, Tagged
from gateway_api.web.request import ApiRequest
from gateway_api.web.services import parts

_OPERATIONS = "operations"


def register(app: Flask, resources: tuple[Routes, ...]) -> None:
    """Gives the application its routes, and nothing else."""
    paths = [path for resource in resources for _, path, _ in resource.rows()]
    app.url_map.converters["session"] = parse.session_segment(paths)
    operations = app.extensions[_OPERATIONS] = {}
    for resource in resources:
        for name, path, operation in resource.rows():
            operations[name] = operation
            app.add_url_rule(path, name, methods=[operation.method])


def respond(app: Flask, request: ApiRequest) -> Response:
    """The response to the current request. `app` has its routes."""
    if request.routing_exception is not None:
        # An unknown path is 404 for every caller, once the API is enabled.
        with check(request):
            app.raise_routing_exception(request)
    operation: ApiOperation = app.extensions[_OPERATIONS][request.endpoint]
    request.operation = operation
    with check(request) as access:
        if operation.is_audited_change:
            parts().audit.check()
        taken = _taken(request, operation)
        # The read takes the access check with it, if that is not decided.
        first = (operation.read(access.core(), **taken),) if operation.read else ()
    response = _encoded(operation, operation.view(*first, **taken))
    return parts().compressor.compress(response) if operation.compressed else response


def _taken(request: ApiRequest, operation: ApiOperation) -> dict[str, Any]:
    """The arguments that the view gets of a request. Raises Invalid and NotFound."""
    taken = {}
    if not operation.ignores_query:
        query = parse.query(request, operation.query_loader)
        if operation.query_loader is not None:
            taken["query"] = query
    if operation.body is not None:
        taken["body"] = parse.body(request, operation.body_loader, optional=operation.optional)
    if request.view_args:
        taken |= parse.variables(request.view_args)
    return taken


def _encoded(operation: ApiOperation, made: Any) -> Response:
    """The response with what the view returned."""
    if isinstance(made, Response):
        return made
    data = made.data if isinstance(made, (Tagged, Located)) else made
    data = data.json if isinstance(data, Passed) else data
    is_preview = operation.preview is not None and isinstance(data, operation.preview)
    status = 200 if is_preview else operation.status
    response = (responses.bare if operation.bare else responses.ok)(data, status)
    if isinstance(made, Tagged):
        response.set_etag(made.etag)
    if isinstance(made, Located):
        response.headers["Location"] = made.location
    return response
