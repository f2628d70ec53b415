"""What workers count themselves: requests, how long those took, and open event streams.

A label's values come from the route table and the statuses, never from the client: a client that requests a
million paths adds one series, not a million.
"""

from time import perf_counter

from flask import Flask, Response, g, request
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from gateway_api.events.streams import Streams
from gateway_api.web.route import template

#: Seconds: closest where answers are, then up to the longest that one may take, but for a commit.
_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.05, 0.2, 1, 5)
#: Method and route of what no route takes, in whatever way.
_UNMATCHED = ("other", "unmatched")


class Meter:
    """The metrics of one worker: under gunicorn in the files of its slot, elsewhere in `registry`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "gateway_api_http_requests",
            "Requests, counted when their answer begins",
            ["method", "route", "status"],
            registry=registry,
        )
        self._durations = Histogram(
            "gateway_api_http_request_duration_seconds",
            "Time from a request to the beginning of its answer",
            ["method", "route"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self._streams = Gauge(
            "gateway_api_sse_clients",
            "Open event streams",
            multiprocess_mode="livesum",
            registry=registry,
        )

    def install(self, app: Flask, streams: Streams) -> None:
        """Has every request measured. To be called before anything else has a hand in requests: so it is
        the first to see them, and the last to see their answers."""
        streams.on_change = self._streams.set
        app.before_request(self._begin)
        app.after_request(self._end)

    def _begin(self) -> None:
        g.began = perf_counter()

    def _end(self, response: Response) -> Response:
        seconds = perf_counter() - g.began
        rule = request.url_rule
        method, route = (request.method, template(rule.rule)) if rule is not None else _UNMATCHED
        self._requests.labels(method, route, response.status_code).inc()
        self._durations.labels(method, route).observe(seconds)
        return response
