"""The scrape target of Prometheus."""

import time
from typing import cast

import gevent
from flask import Blueprint, Flask, Response, current_app
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_flask_exporter import PrometheusMetrics

from gateway_api.web import access, gauges, responses
from gateway_api.web.meter import Meter
from gateway_api.web.scrapes import Scrapes
from gateway_api.web.services import Services

routes = Blueprint("metrics", __name__)

_EXTENSION = "metrics"


def install(app: Flask, services: Services) -> None:
    """Has every request measured. To be called before anything else has a hand in requests."""
    #: What all workers counted, whose files the exporter adds up.
    counted = PrometheusMetrics.for_app_factory(
        path=None, export_defaults=False, registry=CollectorRegistry()
    )
    #: What is read when it is asked for, which the exporter leaves out where there are several workers.
    read = gauges.registry(services.daemon, services.hub)
    Meter(counted.registry).install(app, services.streams)
    beside = gevent.get_hub().threadpool

    def make() -> str:
        # The files' part in a thread: the event loop goes on serving meanwhile. The other asks the core and
        # the hub, which waits as any request does.
        added_up: str
        added_up, _ = beside.apply(counted.generate_metrics)
        return generate_latest(read).decode() + added_up

    app.extensions[_EXTENSION] = Scrapes(make, time.monotonic)


@routes.get("/metrics")
@access.always
@responses.ViewResponse(media_type="text/plain")
def scrape() -> Response:
    """Prometheus' text format 0.0.4, whatever else the scraper would take. At most a second old."""
    scrapes = cast(Scrapes, current_app.extensions[_EXTENSION])
    return Response(scrapes.latest(), content_type=CONTENT_TYPE_PLAIN_0_0_4)
