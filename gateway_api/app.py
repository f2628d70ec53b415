"""The WSGI application: routes and what they share, joined. Starts nothing."""

from flask import Flask
from prometheus_flask_exporter import PrometheusMetrics

from gateway_api.services import Services
from gateway_api.web import access, audit, context, errors, gauges, parse, request_id
from gateway_api.web.routes import audit as audit_log
from gateway_api.web.routes import (
    cgnat,
    configuration,
    demux,
    events,
    interfaces,
    login,
    metrics,
    qos,
    routing,
    subscribers,
    system,
    webhooks,
)

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
)


def create_app(services: Services) -> Flask:
    """The application of one worker. Raises NoAccessMark."""
    app = Flask("gateway_api", static_folder=None)
    # A path is what it is: no redirect, whose page would be HTML, and no options nobody asked for.
    app.url_map.merge_slashes = False
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    context.install(app, services)
    app.extensions[metrics.EXTENSION] = PrometheusMetrics.for_app_factory(
        path=None, export_defaults=False, registry=gauges.registry(services.daemon, services.hub)
    )
    app.url_map.converters["session"] = parse.SessionSegment
    for resource in RESOURCES:
        app.register_blueprint(resource.routes)
    errors.install(app)
    request_id.install(app)
    # In this order: who may not do a thing isn't told what is wrong with how it was asked for.
    access.install(app)
    audit.install(app)
    parse.install(app)
    return app
