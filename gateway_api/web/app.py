"""The WSGI application of either profile."""

import os
from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn
from urllib.parse import urlsplit

import gevent
from flask import Flask, Request, Response
from flask.sessions import NullSession, SessionInterface, SessionMixin
from werkzeug.exceptions import NotFound
from werkzeug.routing import MapAdapter, RequestRedirect
from werkzeug.wsgi import get_host

from gateway_api.audit import core_changes
from gateway_api.base.errors import Moved
from gateway_api.base.process import keep_loaded, return_large_objects
from gateway_api.base.settings import TOKEN, USERS, Profile, Settings
from gateway_api.history import recorder
from gateway_api.web import audit, endpoint, errors, headers, metrics
from gateway_api.web.assets import Asset
from gateway_api.web.openapi.document import document
from gateway_api.web.operation import Routes
from gateway_api.web.request import ApiRequest, current
from gateway_api.web.routes import (
    configuration,
    events,
    jobs,
    login,
    network,
    pages,
    subscribers,
    system,
    token_profile,
)
from gateway_api.web.services import EXTENSION, UserProfileParts, WorkerParts

#: `etc/routes.txt` lists their routes, with the access to each.
ROUTES: dict[Profile, tuple[Routes, ...]] = {
    USERS: (
        login.routes,
        subscribers.routes,
        subscribers.past,
        jobs.routes,
        subscribers.traffic,
        system.routes,
        configuration.routes,
        network.interfaces,
        network.qos,
        network.routing,
        network.cgnat,
        network.demux,
        events.routes,
        events.webhooks,
        system.audit_log,
        system.metrics,
        pages.docs,
        pages.page,
        pages.documentation,
    ),
    TOKEN: (token_profile.routes,),
}


class _NoSessions(SessionInterface):
    """Tokens tell who the caller is."""

    _none: SessionMixin = NullSession()

    def open_session(self, app: Flask, request: Request) -> SessionMixin:
        return self._none


class Application(Flask):
    """Leaves the path of a request as it is. Has no sessions, signals, or functions before a request, which
    Flask looks for each time."""

    request_class = ApiRequest
    session_interface = _NoSessions()
    #: Called with each request and its response, in this order.
    on_response: tuple[Callable[[ApiRequest, Response], None], ...] = ()

    def stop(self) -> None:
        """Ends the event streams. When the worker stops."""
        parts: WorkerParts = self.extensions[EXTENSION]
        if isinstance(parts, UserProfileParts):
            parts.streams.close()

    def end(self) -> None:
        """Completes the audit log. After the last request of the worker."""
        parts: WorkerParts = self.extensions[EXTENSION]
        parts.audit.close()

    def full_dispatch_request(self) -> Response:
        try:
            response = endpoint.respond(self, current())
        except Exception as error:  # noqa: BLE001 - a handler logs it
            response = self.make_response(self.handle_user_exception(error))
        return self.process_response(response)

    def process_response(self, response: Response) -> Response:
        request = current()
        if request.change_response is not None:
            request.change_response(response)
        for each in self.on_response:
            each(request, response)
        return response

    def do_teardown_request(self, exc: object = None) -> None:
        audit.ended(current())

    def do_teardown_appcontext(self, exc: object = None) -> None:
        pass

    def ensure_sync(self, func: Callable[..., Any]) -> Callable[..., Any]:
        # No function is a coroutine. Flask would look at each, with each request.
        return func

    def create_url_adapter(self, request: Request | None) -> MapAdapter | None:
        if request is None:
            return None
        environ = request.environ
        path: str = environ["PATH_INFO"]
        # werkzeug would merge leading slashes.
        if path.startswith("//"):
            raise NotFound
        # Flask would find the host twice, and decode once more what the request has. It would also look for
        # routes of websockets where a client asks for one, which a server may ignore (RFC 9110 section 7.8).
        request.host = get_host(environ)
        return self.url_map.bind(
            request.host.lower(),
            request.root_path,
            "",
            request.scheme,
            request.method,
            path and request.path,
            request.query_string.decode(errors="replace"),
        )

    def raise_routing_exception(self, request: Request) -> NoReturn:
        if isinstance(request.routing_exception, RequestRedirect):
            # werkzeug would make an address of the Host that the client sent, and a body in HTML.
            there = urlsplit(request.routing_exception.new_url)
            raise Moved(there._replace(scheme="", netloc="").geturl())
        super().raise_routing_exception(request)


@cache
def openapi() -> Asset:
    """The OpenAPI document of the profile USERS. gunicorn's arbiter calls it before the first fork: then the
    workers share it, and none takes the memory to make it."""
    return pages.encoded(document(ROUTES[USERS]))


def users() -> Application:
    """gunicorn calls it in each worker, for the profile USERS."""
    keep_loaded()
    return_large_objects()
    settings = Settings.from_environment(os.environ, USERS)
    services = UserProfileParts.from_settings(settings)
    core_changes.start(settings.core_socket, services.audit)
    recorder.start(settings.core_socket, settings.history, gevent.get_hub().threadpool)
    return create_app(services)


def token() -> Application:
    """gunicorn calls it in each worker, for the profile TOKEN."""
    keep_loaded()
    return_large_objects()
    return create_app(WorkerParts.from_settings(Settings.from_environment(os.environ, TOKEN)))


def create_app(parts: WorkerParts) -> Application:
    """The application of one worker. Starts nothing."""
    app = Application("gateway_api", static_folder=None)
    # The redirect that merges slashes would have a body in HTML.
    app.url_map.merge_slashes = False
    # No rule has defaults, for which werkzeug would look with each request.
    app.url_map.redirect_defaults = False
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    app.extensions[EXTENSION] = parts
    endpoint.register(app, ROUTES[parts.profile])
    errors.install(app)
    # The audit log and the metrics get the final status, and a duration with that of the audit log.
    app.on_response = (headers.complete, audit.responded)
    if isinstance(parts, UserProfileParts):
        app.on_response += (metrics.install(app, parts),)
        pages.install(app, openapi())
    return app
