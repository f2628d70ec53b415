"""The scrape target of Prometheus."""

from flask import Blueprint, Response, current_app
from prometheus_flask_exporter import PrometheusMetrics

from gateway_api.web import access

routes = Blueprint("metrics", __name__)

EXTENSION = "prometheus"


@routes.get("/metrics")
@access.always
def scrape() -> Response:
    """Prometheus' text format 0.0.4, whatever else the scraper would take."""
    exporter: PrometheusMetrics = current_app.extensions[EXTENSION]
    text, content_type = exporter.generate_metrics()
    return Response(text, content_type=content_type)
