"""The WSGI application of either profile."""

import os
from collections.abc import Callable
from functools import cache
from typing import Any

import gevent
from flask import Blueprint, Flask, Request
from werkzeug.exceptions import NotFound
from werkzeug.routing import MapAdapter

from gateway_api.audit import core_changes
from gateway_api.base.settings import TOKEN, USERS, Profile, Settings
from gateway_api.history import recorder
from gateway_api.web import audit, errors, metrics, operation, responses
from gateway_api.web.openapi import make_document
from gateway_api.web.operation import Route
from gateway_api.web.request import ApiRequest
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
from gateway_api.web.services import EXTENSION, UserServices, WorkerServices
from gateway_contract.base.process import keep_loaded, return_large_objects

#: `etc/routes.txt` lists their routes, with the access to each.
BLUEPRINTS: dict[Profile, tuple[Blueprint, ...]] = {
    USERS: (
        login.login,
        subscribers.subscribers,
        subscribers.past,
        jobs.jobs,
        subscribers.traffic,
        system.system,
        configuration.configuration,
        network.interfaces,
        network.qos,
        network.routing,
        network.cgnat,
        network.demux,
        events.events,
        events.webhooks,
        system.audit_log,
        system.metrics,
        pages.docs,
        pages.page,
        pages.documentation,
    ),
    TOKEN: (token_profile.token_profile,),
}


class Application(Flask):
    """Leaves the path of a request as it is."""

    request_class = ApiRequest

    def __init__(self) -> None:
        super().__init__("gateway_api", static_folder=None, template_folder="web/docs")
        # The redirect that merges slashes would have a body in HTML.
        self.url_map.merge_slashes = False
        # No rule has defaults, for which werkzeug would look with each request.
        self.url_map.redirect_defaults = False
        self.config["PROVIDE_AUTOMATIC_OPTIONS"] = False

    def create_url_adapter(self, request: Request | None) -> MapAdapter | None:
        if request is not None:
            # werkzeug would merge leading slashes.
            if request.environ["PATH_INFO"].startswith("//"):
                raise NotFound
            # werkzeug would look for a route of websockets. A server may ignore it (RFC 9110 section 7.8).
            request.environ.pop("HTTP_UPGRADE", None)
        return super().create_url_adapter(request)

    def ensure_sync(self, func: Callable[..., Any]) -> Callable[..., Any]:
        # No function is a coroutine. Flask would look at each, with each request.
        return func

    def stop(self) -> None:
        """End the event streams. When the worker stops."""
        services: WorkerServices = self.extensions[EXTENSION]
        if isinstance(services, UserServices):
            services.streams.close()

    def end(self) -> None:
        """Complete the audit log. After the last request of the worker."""
        services: WorkerServices = self.extensions[EXTENSION]
        services.audit.close()


def routes_of(profile: Profile) -> list[Route]:
    """Return all routes of the profile, in their order."""
    return list(operation.find_routes(_with_routes(Application(), profile)))


@cache
def openapi() -> pages.Asset:
    """Return the OpenAPI document of the profile USERS. gunicorn's arbiter calls it before the first fork:
    then the workers share it, and none takes the memory to make it."""
    return pages.Asset.of_document(make_document(routes_of(USERS)))


def users() -> Application:
    """gunicorn calls it in each worker, for the profile USERS."""
    keep_loaded()
    return_large_objects()
    settings = Settings.from_environment(os.environ, USERS)
    user_services = UserServices(settings)
    core_changes.start(settings.core_socket, user_services.audit)
    recorder.start(settings.core_socket, settings.history, gevent.get_hub().threadpool)
    return create_app(user_services)


def token() -> Application:
    """gunicorn calls it in each worker, for the profile TOKEN."""
    keep_loaded()
    return_large_objects()
    return create_app(WorkerServices(Settings.from_environment(os.environ, TOKEN)))


def create_app(services: WorkerServices | None = None) -> Application:
    """Return the application of one worker. It starts nothing. Without parts, it has the routes of the
    profile USERS only, for `flask --app gateway_api.web.app routes`."""
    app = Application()
    if services is None:
        return _with_routes(app, USERS)
    app.extensions[EXTENSION] = services
    errors.install(app)
    # Hooks run in this order before a request, and from the last to the first after it: metrics get the whole
    # time of a request, and metrics and the audit log the final status.
    if isinstance(services, UserServices):
        metrics.install(app, services)
        pages.install(app, openapi())
    _with_routes(app, services.profile)
    audit.install(app)
    responses.install(app)
    return app


def _with_routes(app: Application, profile: Profile) -> Application:
    """Return the application, which gets the routes of the profile."""
    operation.install(app)
    for blueprint in BLUEPRINTS[profile]:
        app.register_blueprint(blueprint)
    operation.require_operations(app)
    return app
