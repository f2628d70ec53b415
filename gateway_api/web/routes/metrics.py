"""The scrape target of Prometheus."""

from dataclasses import dataclass
from typing import cast

from flask import Blueprint, Flask, Response, current_app
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_flask_exporter import PrometheusMetrics

from gateway_api.services import Services
from gateway_api.web import access, answers, gauges
from gateway_api.web.meter import Meter

routes = Blueprint("metrics", __name__)

_EXTENSION = "metrics"


@dataclass(frozen=True)
class _Exported:
    """`counted`: by all workers, whose files the exporter adds up. `read`: when it is asked for, which the
    exporter leaves out where there are several workers."""

    counted: PrometheusMetrics
    read: CollectorRegistry


def install(app: Flask, services: Services) -> None:
    """Has every request measured. To be called before anything else has a hand in requests."""
    counted = PrometheusMetrics.for_app_factory(
        path=None, export_defaults=False, registry=CollectorRegistry()
    )
    Meter(counted.registry).install(app, services.streams)
    app.extensions[_EXTENSION] = _Exported(counted, gauges.registry(services.daemon, services.hub))


@routes.get("/metrics")
@access.always
@answers.text("text/plain")
def scrape() -> Response:
    """Prometheus' text format 0.0.4, whatever else the scraper would take."""
    exported = cast(_Exported, current_app.extensions[_EXTENSION])
    counted, content_type = exported.counted.generate_metrics()
    return Response(generate_latest(exported.read).decode() + counted, content_type=content_type)
