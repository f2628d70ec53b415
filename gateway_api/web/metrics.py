"""Metrics: workers count requests and streams; the state of the core and the hub is read for each scrape.

The values of labels come from the route table and the statuses, never from the client: a client that requests
a million paths adds one series, not a million.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import cast

import gevent
from flask import Flask, Response, current_app
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_flask_exporter import PrometheusMetrics

from gateway_api.base import logs
from gateway_api.base.errors import CoreUnavailable, HubUnavailable
from gateway_api.base.process import on_thread
from gateway_api.core_client.client import Daemon
from gateway_api.events.streams import Streams
from gateway_api.hub.client import Hub
from gateway_api.version import VERSION
from gateway_api.web import dependencies
from gateway_api.web.dependencies import Host
from gateway_api.web.operation import template
from gateway_api.web.request import current
from gateway_api.web.services import UserProfileParts
from gateway_api.wire.core.health import Dependency
from gateway_api.wire.core.sessions import GetStatistics, Statistics
from gateway_api.wire.hub import GetCounts, WebhookCounts

_log = logging.getLogger(__name__)

_EXTENSION = "metrics"

#: Seconds: dense where most responses are, up to the longest that any but a commit may take.
_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.05, 0.2, 1, 5)
#: Method and route of a request without a route.
_UNMATCHED = ("other", "unmatched")
#: Seconds for which later scrapes get the same text. Prometheus scrapes every 5 to 60.
KEPT = 1.0


class Scrapes:
    """The text for scrapes, made at most once a second in a worker.

    Adding up what the workers counted takes 10 to 25 ms of the interpreter, and a scrape requires no token:
    a few clients without a pause would leave no time for others. `make` gives the text; `clock` gives
    monotonic seconds."""

    def __init__(self, make: Callable[[], str], clock: Callable[[], float]) -> None:
        self._make = make
        self._clock = clock
        self._one_at_a_time = threading.Lock()
        self._text = ""
        self._made_at: float | None = None

    def latest(self) -> str:
        """The text, made now or within the last second. Scrapes that arrive meanwhile wait for it."""
        with self._one_at_a_time:
            if self._made_at is None or self._clock() - self._made_at >= KEPT:
                self._text = self._make()
                # From its end: a core that hangs makes it take seconds, and each waiting scrape would begin
                # anew.
                self._made_at = self._clock()
            return self._text


def install(app: Flask, services: UserProfileParts) -> None:
    """Counts every request, and makes the scrapes. To be called before other modules' `install`, so that it
    gets a response last."""
    # The exporter adds up the files of all workers. With several workers it leaves out collectors.
    exporter = PrometheusMetrics.for_app_factory(
        path=None, export_defaults=False, registry=CollectorRegistry()
    )
    _count(app, services.streams, exporter.registry)
    state = CollectorRegistry()
    state.register(_State(services.daemon, services.hub, services.host))
    pool = gevent.get_hub().threadpool

    def make() -> str:
        # In a thread, so that the event loop continues. The rest waits for sockets, as any request does.
        try:
            counted: str
            counted, _ = on_thread(pool, exporter.generate_metrics)
        except ValueError as error:
            # There is no folder with counters: its disk is full.
            _log.error("scrape without counters: %s", error, extra=logs.extra(request_id=current().id))
            counted = ""
        return generate_latest(state).decode() + counted

    app.extensions[_EXTENSION] = Scrapes(make, time.monotonic)


def scrapes() -> Scrapes:
    """The scrapes of the current worker."""
    return cast(Scrapes, current_app.extensions[_EXTENSION])


def _count(app: Flask, streams: Streams, registry: CollectorRegistry) -> None:
    requests = Counter(
        "gateway_api_http_requests",
        "Requests, counted when their response begins",
        ["method", "route", "status"],
        registry=registry,
    )
    durations = Histogram(
        "gateway_api_http_request_duration_seconds",
        "Time from a request to the beginning of its response",
        ["method", "route"],
        buckets=_BUCKETS,
        registry=registry,
    )
    streams.on_change = Gauge(
        "gateway_api_sse_clients", "Open event streams", multiprocess_mode="livesum", registry=registry
    ).set

    @cache
    def counters(method: str, rule: str | None, status: int) -> tuple[Counter, Histogram]:
        labels = _UNMATCHED if rule is None else (method, template(rule))
        return requests.labels(*labels, status), durations.labels(*labels)

    @app.after_request
    def _end(response: Response) -> Response:
        request = current()
        seconds = time.perf_counter() - request.began
        rule = request.url_rule
        # A method without a rule may be any text.
        key = ("", None) if rule is None else (request.method, rule.rule)
        number, duration = counters(*key, response.status_code)
        number.inc()
        duration.observe(seconds)
        return response


class _State(Collector):
    """Metrics that are the same from every worker. There are no samples of a core or hub that is unavailable:
    a zero would be wrong, and cause an alert."""

    def __init__(self, daemon: Daemon, hub: Hub, host: Host) -> None:
        self._daemon = daemon
        self._hub = hub
        self._host = host

    def collect(self) -> Iterator[Metric]:
        found = self._host.dependencies()
        info = GaugeMetricFamily("gateway_api_build_info", "The version that runs", labels=["version"])
        info.add_metric([VERSION], 1)
        yield info
        try:
            counts, told = self._daemon.reply(GetStatistics()), self._daemon.dependencies()
            yield from self._of_core(counts)
            found += dependencies.core_replied(told)
        except CoreUnavailable as error:
            found.append(dependencies.core_failed(error))
            _log.error("scrape without the core: %s", error, extra=logs.extra(request_id=current().id))
            yield GaugeMetricFamily("gateway_api_core_up", "Whether the core daemon replies", 0)
        try:
            waiting = self._hub.reply(GetCounts())
            yield from self._of_hub(waiting)
            found.append(dependencies.hub_replied(waiting))
        except HubUnavailable as error:
            found.append(dependencies.hub_failed())
            _log.error("scrape without the hub: %s", error, extra=logs.extra(request_id=current().id))
        yield from self._of_dependencies(found)

    def _of_core(self, counts: Statistics) -> Iterator[Metric]:
        for name, text, value in (
            ("gateway_api_core_up", "Whether the core daemon replies", 1),
            ("svc_active_sessions_total", "Total active subscriber sessions", counts.active_sessions),
            ("svc_vrf_steered_sessions", "VRF-steered CGNAT sessions", counts.vrf_steered_sessions),
            ("svc_qos_sessions", "Sessions with QoS applied", counts.qos_sessions),
            ("gateway_sessions_stale", "Sessions whose source does not reply", counts.stale_sessions),
            (
                "gateway_core_unavailable_sources",
                "Sources of sessions that do not reply",
                len(counts.unavailable_sources),
            ),
            ("gateway_core_faults", "Faults that the core could not repair", counts.faults),
        ):
            yield GaugeMetricFamily(name, text, value)
        for name, text, label, counted in (
            (
                "gateway_core_repairs",
                "Repairs of the data plane by the core",
                "kind",
                {each.kind: each.repairs for each in counts.repairs},
            ),
            (
                "gateway_core_demux_refusals",
                "First frames of subscribers that made no VLAN",
                "reason",
                {each.reason: each.frames for each in counts.demux_refusals},
            ),
            (
                "gateway_core_spoofed_packets",
                "Packets that were dropped, because their source belongs to no session of their device",
                "trunk",
                {each.trunk: each.spoofed for each in counts.packet_drops},
            ),
            (
                "gateway_core_blocked_packets",
                "Packets of subscribers to services of the gateway that are not theirs, and of DHCP servers",
                "trunk",
                {each.trunk: each.blocked for each in counts.packet_drops},
            ),
        ):
            family = CounterMetricFamily(name, text, labels=[label])
            for kind, number in counted.items():
                family.add_metric([kind], number)
            yield family
        skipped = CounterMetricFamily(
            "gateway_core_skipped_entries",
            "Entries that the core could not read, and skipped",
            labels=["source", "kind"],
        )
        for each in counts.skipped_entries:
            skipped.add_metric([each.source, each.kind], each.entries)
        yield skipped
        if (delays := counts.limit_delays) is not None:
            buckets = [(str(each.seconds), each.sessions) for each in delays.counts]
            yield HistogramMetricFamily(
                "gateway_core_limit_delay_seconds",
                "Time from the moment at which the core finds a new session until its rates are limited",
                buckets=[*buckets, ("+Inf", delays.sessions)],
                sum_value=delays.seconds,
            )

    def _of_hub(self, counts: WebhookCounts) -> Iterator[Metric]:
        for name, text, value in (
            ("webhooks", "Webhooks, registered and declared", counts.webhooks),
            ("webhook_paused", "Webhooks that are paused since they fail in a row", counts.paused),
            ("webhook_waiting", "Messages that wait for a webhook's next attempt", counts.waiting),
        ):
            yield GaugeMetricFamily(f"gateway_api_{name}", text, value)
        attempts = CounterMetricFamily(
            "gateway_api_webhook_attempts", "Attempts to deliver a message", labels=["result"]
        )
        attempts.add_metric(["delivered"], counts.delivered)
        attempts.add_metric(["failed"], counts.failed)
        yield attempts
        yield CounterMetricFamily(
            "gateway_api_webhook_skipped", "Messages given up after the last attempt", counts.skipped
        )
        yield CounterMetricFamily(
            "gateway_api_webhook_dropped", "Messages dropped because too many waited", counts.dropped
        )

    def _of_dependencies(self, found: Iterable[Dependency]) -> Iterator[Metric]:
        states = GaugeMetricFamily(
            "gateway_dependency_state",
            "Health of a dependency: 0 ok or unused, 1 unknown, 2 degraded, 3 failed",
            labels=["dependency"],
        )
        for one in found:
            states.add_metric([one.name], one.state.severity)
        yield states
        if (left := self._host.certificate_remaining) is not None:
            text = "Time until the TLS certificate of the API ends"
            yield GaugeMetricFamily("gateway_certificate_remaining_seconds", text, left)
