"""The WSGI application of either profile: its routes, and what they share."""

import os
from types import ModuleType

from flask import Flask, Request
from werkzeug.exceptions import NotFound
from werkzeug.routing import MapAdapter

from gateway_api.audit import core_changes
from gateway_api.base.settings import TOKEN, USERS, Profile, Settings
from gateway_api.web import access, audit, context, errors, headers, parse, request_id
from gateway_api.web.routes import audit as audit_log
from gateway_api.web.routes import (
    cgnat,
    configuration,
    demux,
    docs,
    events,
    interfaces,
    login,
    metrics,
    page,
    qos,
    routing,
    subscribers,
    system,
    token_profile,
    webhooks,
)
from gateway_api.web.services import Parts, Services

#: Modules with a blueprint. `etc/routes.txt` lists all routes, with their access.
ROUTES: dict[Profile, tuple[ModuleType, ...]] = {
    USERS: (
        login,
        subscribers,
        system,
        configuration,
        interfaces,
        qos,
        routing,
        cgnat,
        demux,
        events,
        webhooks,
        audit_log,
        metrics,
        docs,
        page,
    ),
    TOKEN: (token_profile,),
}


class Application(Flask):
    """Takes a path as it is."""

    def stop(self) -> None:
        """Ends what does not end by itself. When the worker stops."""
        parts: Parts = self.extensions[context.EXTENSION]
        parts.stop()

    def create_url_adapter(self, request: Request | None) -> MapAdapter | None:
        # werkzeug would merge leading slashes.
        if request is not None and request.environ["PATH_INFO"].startswith("//"):
            raise NotFound
        return super().create_url_adapter(request)


def users() -> Application:
    """gunicorn calls it in each worker, for the profile USERS."""
    settings = Settings.from_environment(os.environ, USERS)
    services = Services.from_settings(settings)
    core_changes.start(settings.core_socket, services.audit)
    return create_app(services)


def token() -> Application:
    """The same for the profile TOKEN."""
    return create_app(Parts.from_settings(Settings.from_environment(os.environ, TOKEN)))


def create_app(parts: Parts) -> Application:
    """The application of one worker. Starts nothing. Raises NoAccessMark."""
    app = Application("gateway_api", static_folder=None)
    # A redirect's page would be HTML.
    app.url_map.merge_slashes = False
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    context.install(app, parts)
    if isinstance(parts, Services):
        metrics.install(app, parts)
    register(app, parts.profile)
    if isinstance(parts, Services):
        docs.install(app)
    errors.install(app)
    request_id.install(app)
    # In this order: a caller without access learns nothing about the rest of its request.
    access.install(app, parts.profile)
    audit.install(app)
    parse.install(app)
    headers.install(app)
    return app


def register(app: Flask, profile: Profile) -> None:
    """Gives the application its routes, and nothing else."""
    app.url_map.converters["session"] = parse.SessionSegment
    for module in ROUTES[profile]:
        app.register_blueprint(module.routes)
