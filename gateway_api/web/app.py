"""WSGI application of each profile."""

import os
from collections.abc import Callable
from functools import cache
from typing import Any

import gevent
from flask import Blueprint, Flask, Request
from werkzeug.exceptions import NotFound
from werkzeug.routing import MapAdapter

from gateway_api.audit.log import start_recording_changes
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
from gateway_api.web.services import EXTENSION_NAME, UserServices, WorkerServices
from gateway_contract.base.process import freeze_loaded_objects, return_large_objects

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
    """Flask application that does not rewrite the path of a request."""

    request_class = ApiRequest

    def __init__(self) -> None:
        super().__init__("gateway_api", static_folder=None, template_folder="web/docs")
        # The redirect that merges slashes would have a body in HTML.
        self.url_map.merge_slashes = False
        # werkzeug would look for rules with defaults at each request, and there are none.
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
        # No function is a coroutine. Flask would look at each function, at each request.
        return func

    def end_streams(self) -> None:
        """End the event streams. Called when the worker stops."""
        services: WorkerServices = self.extensions[EXTENSION_NAME]
        if isinstance(services, UserServices):
            services.streams.close()

    def close_audit_log(self) -> None:
        """Close the audit log. Called after the last request of the worker."""
        services: WorkerServices = self.extensions[EXTENSION_NAME]
        services.audit.close()


def list_routes(profile: Profile) -> list[Route]:
    """Return all routes of the profile, in the order of their registration."""
    return list(operation.find_routes(_add_routes(Application(), profile)))


@cache
def make_openapi() -> pages.Asset:
    """Return the OpenAPI document of the profile USERS. Called in gunicorn's arbiter before the first fork,
    so that all workers share the memory of the document."""
    return pages.Asset.of_document(make_document(list_routes(USERS)))


def make_users_app() -> Application:
    """Return the application of the profile USERS. gunicorn calls this function in each worker."""
    freeze_loaded_objects()
    return_large_objects()
    settings = Settings.from_environment(os.environ, USERS)
    user_services = UserServices(settings)
    start_recording_changes(settings.core_socket, user_services.audit)
    recorder.start(settings.core_socket, settings.history, gevent.get_hub().threadpool)
    return create_app(user_services)


def make_token_app() -> Application:
    """Return the application of the profile TOKEN. gunicorn calls this function in each worker."""
    freeze_loaded_objects()
    return_large_objects()
    return create_app(WorkerServices(Settings.from_environment(os.environ, TOKEN)))


def create_app(services: WorkerServices | None = None) -> Application:
    """Return the application of one worker, without starting background tasks. If `services` is None, the
    application has only the routes of the profile USERS and cannot serve requests; the command `flask --app
    gateway_api.web.app routes` uses such an application."""
    app = Application()
    if services is None:
        return _add_routes(app, USERS)
    app.extensions[EXTENSION_NAME] = services
    errors.install(app)
    # Hooks run in this order before a request, and from the last to the first after it: metrics get the whole
    # time of a request, and metrics and the audit log the final status.
    if isinstance(services, UserServices):
        metrics.install(app, services)
        pages.install(app, make_openapi())
    _add_routes(app, services.profile)
    audit.install(app)
    responses.install(app)
    return app


def _add_routes(app: Application, profile: Profile) -> Application:
    """Add the routes of the profile to the application, and return the application."""
    operation.install(app)
    for blueprint in BLUEPRINTS[profile]:
        app.register_blueprint(blueprint)
    operation.require_operations(app)
    return app
