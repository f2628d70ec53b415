"""The WSGI application: routes and what they share, joined. Starts nothing."""

from flask import Flask

from gateway_api.web import access, audit, errors, headers, parse, request_id
from gateway_api.web.blank import blank_app
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
    webhooks,
)
from gateway_api.web.services import Services

RESOURCES = (
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
)


def create_app(services: Services) -> Flask:
    """The application of one worker. Raises NoAccessMark."""
    app = blank_app(services)
    metrics.install(app, services)
    register(app)
    docs.install(app)
    errors.install(app)
    request_id.install(app)
    # In this order: who may not do a thing isn't told what is wrong with how it was asked for.
    access.install(app)
    audit.install(app)
    parse.install(app)
    headers.install(app)
    return app


def register(app: Flask) -> None:
    """Gives the application its routes, and nothing else."""
    app.url_map.converters["session"] = parse.SessionSegment
    for resource in RESOURCES:
        app.register_blueprint(resource.routes)
