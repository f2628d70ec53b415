"""Metrics: prometheus_flask_exporter counts requests, and each scrape reads the state of the core and the
hub.

The values of labels come from the route table and the statuses, never from the client: a client that requests
a million paths adds one series, not a million.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

import gevent
from flask import Flask, Request, Response, current_app
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_flask_exporter import PrometheusMetrics

from gateway_api.base.dependencies import get_locked_at
from gateway_api.hub.interface import GetCounts, Hub, WebhookCounts
from gateway_api.web import counters, health
from gateway_api.web.health import Host
from gateway_api.web.operation import make_path_template
from gateway_api.web.request import get_request, make_log_extra
from gateway_api.web.services import UserServices
from gateway_contract.base.errors import CoreUnavailable, HubUnavailable
from gateway_contract.base.process import run_on_thread
from gateway_contract.core.health import Dependency
from gateway_contract.core.sessions import GetStatistics, Statistics
from gateway_contract.core_client import CoreClient
from gateway_contract.version import VERSION

_log = logging.getLogger(__name__)

_EXTENSION_NAME = "metrics"

#: Upper bounds of the histogram's buckets, in seconds: dense where most responses are, up to the longest
#: response that is not a commit.
BUCKET_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.05, 0.2, 1, 5)
#: Time for which later scrapes get the same text, in seconds. Prometheus scrapes every 5 to 60 seconds.
CACHE_SECONDS = 1.0

_REPAIRS_HELP = "Repairs of the data plane by the core"
_DEMUX_REFUSALS_HELP = "First frames of subscribers that made no VLAN"
_SPOOFED_HELP = "Packets that were dropped, because their source belongs to no session of their device"
_BLOCKED_HELP = "Packets of subscribers to services of the gateway that are not theirs, and of DHCP servers"
_SKIPPED_HELP = "Entries that the core could not read, and skipped"


class ScrapeCache:
    """Cache of a worker's metrics text, which is created at most once a second.

    Adding up the counter files of all workers takes 10 to 25 ms of processor time, and a scrape requires no
    token: a few clients that scrape without a pause would leave no time for other requests. `make` creates
    the text; `clock` gives monotonic seconds."""

    def __init__(self, make: Callable[[], str], clock: Callable[[], float]) -> None:
        self._make = make
        self._clock = clock
        self._lock = threading.Lock()
        self._text = ""
        self._made_at: float | None = None

    def read(self) -> str:
        """Return the cached text if it is less than a second old. Otherwise create and return a new text.
        Scrapes that arrive while the text is being created wait for the new text."""
        with self._lock:
            if self._made_at is None or self._clock() - self._made_at >= CACHE_SECONDS:
                self._text = self._make()
                # The time after `make`: while the core does not reply, `make` takes seconds. With the time
                # before `make`, each waiting scrape would create its own text.
                self._made_at = self._clock()
            return self._text


def install(app: Flask, user_services: UserServices) -> None:
    """Register the hooks that count requests, and create the cache for scrapes. Must be called before the
    `install` of the other modules, so that these hooks run first before a request and last after the
    request."""
    registry = CollectorRegistry()
    # Adds up the files of all workers. The exporter's class for gunicorn would not start on a full disk.
    exporter = PrometheusMetrics.for_app_factory(path=None, export_defaults=False, registry=registry)
    if counters.has_space():
        exporter.export_defaults(BUCKET_SECONDS, route, prefix="gateway_api", app=app)
        streams = Gauge(
            "gateway_api_sse_clients", "Open event streams", multiprocess_mode="livesum", registry=registry
        )
        streams.set(0)
        user_services.streams.on_change = streams.set

    @app.after_request
    def _limit_method(response: Response) -> Response:
        # Runs just before the exporter's hook, which uses the method as a label. Without a route, a client
        # can send any text as the method.
        request = get_request()
        if request.url_rule is None:
            request.method = "other"
        return response

    state = CollectorRegistry()
    state.register(_StateCollector(user_services.core, user_services.hub, user_services.host))
    pool = gevent.get_hub().threadpool

    def make_text() -> str:
        # On a thread, so that the event loop continues.
        try:
            counter_text: str
            counter_text, _ = run_on_thread(pool, exporter.generate_metrics)
        except (OSError, ValueError) as error:
            # The folder does not exist, or a new worker has just taken over a file.
            _log.error(
                "cannot read the counter files, a scrape lacks the counts of requests: %s",
                error,
                extra=make_log_extra(),
            )
            counter_text = ""
        return generate_latest(state).decode() + counter_text

    app.extensions[_EXTENSION_NAME] = ScrapeCache(make_text, time.monotonic)


def get_scrape_cache() -> ScrapeCache:
    """Return the cache for scrapes of the current worker."""
    return cast(ScrapeCache, current_app.extensions[_EXTENSION_NAME])


def route(request: Request) -> str:
    """Return the path template of the request's route, such as `/subscribers/{id}`, or `unmatched` if no
    route matches. The exporter gives the label the name of this function."""
    return "unmatched" if request.url_rule is None else make_path_template(request.url_rule.rule)


class _StateCollector(Collector):
    """Collector of the metrics that are the same in every worker: the state of the core, of the hub and of
    this machine. An unavailable core or hub has no samples: zeros would be wrong, and would cause alerts."""

    def __init__(self, core: CoreClient, hub: Hub, host: Host) -> None:
        self._core = core
        self._hub = hub
        self._host = host

    def collect(self) -> Iterator[Metric]:
        dependencies = self._host.check()
        info = GaugeMetricFamily("gateway_api_build_info", "The version that runs", labels=["version"])
        info.add_metric([VERSION], 1)
        yield info
        yield GaugeMetricFamily(
            "gateway_api_bill_of_materials_timestamp_seconds",
            "Day on which the bundled Python packages were last updated to their newest versions",
            get_locked_at(),
        )
        try:
            statistics, core_dependencies = self._core.call(GetStatistics()), self._core.get_dependencies()
            yield from self._describe_core(statistics)
            dependencies += health.describe_core(core_dependencies)
        except CoreUnavailable as error:
            dependencies += health.describe_core(error)
            _log.error(
                "cannot read the state of the core, a scrape lacks its metrics: %s",
                error,
                extra=make_log_extra(),
            )
            yield GaugeMetricFamily("gateway_api_core_up", "Whether the core daemon replies", 0)
        try:
            hub_counts = self._hub.call(GetCounts())
            yield from self._describe_hub(hub_counts)
            dependencies.append(health.describe_hub(hub_counts))
        except HubUnavailable as error:
            dependencies.append(health.describe_hub(None))
            _log.error(
                "cannot read the counts of the hub, a scrape lacks its metrics: %s",
                error,
                extra=make_log_extra(),
            )
        if (progress := self._host.forwarding_progress) is not None:
            for name, help_text, count in (
                ("forwarded", "Audit records that the receiver has confirmed", progress.forwarded),
                ("forward_lost", "Audit records dropped before they were forwarded", progress.lost),
            ):
                yield _make_counter(f"gateway_api_audit_{name}", help_text, {(): count}, [])
        yield from self._describe_dependencies(dependencies)

    def _describe_core(self, statistics: Statistics) -> Iterator[Metric]:
        unavailable = len(statistics.unavailable_sources)
        for name, help_text, value in (
            ("gateway_api_core_up", "Whether the core daemon replies", 1),
            ("svc_active_sessions_total", "Total active subscriber sessions", statistics.active_sessions),
            ("svc_vrf_steered_sessions", "VRF-steered CGNAT sessions", statistics.vrf_steered_sessions),
            ("svc_qos_sessions", "Sessions with QoS applied", statistics.qos_sessions),
            ("gateway_sessions_stale", "Sessions whose source does not reply", statistics.stale_sessions),
            ("gateway_core_unavailable_sources", "Sources of sessions that do not reply", unavailable),
            ("gateway_core_faults", "Faults that the core could not repair", statistics.faults),
        ):
            yield GaugeMetricFamily(name, help_text, value)
        drops = statistics.packet_drops
        refusals = {(each.reason,): each.frames for each in statistics.demux_refusals}
        skipped = {(each.source, each.kind): each.entries for each in statistics.skipped_entries}
        for name, help_text, labels, values in (
            ("repairs", _REPAIRS_HELP, ["kind"], {(each.kind,): each.repairs for each in statistics.repairs}),
            ("demux_refusals", _DEMUX_REFUSALS_HELP, ["reason"], refusals),
            ("spoofed_packets", _SPOOFED_HELP, ["trunk"], {(each.trunk,): each.spoofed for each in drops}),
            ("blocked_packets", _BLOCKED_HELP, ["trunk"], {(each.trunk,): each.blocked for each in drops}),
            ("skipped_entries", _SKIPPED_HELP, ["source", "kind"], skipped),
        ):
            yield _make_counter(f"gateway_core_{name}", help_text, values, labels)
        if (delays := statistics.limit_delays) is not None:
            buckets = [(str(each.seconds), each.sessions) for each in delays.counts]
            yield HistogramMetricFamily(
                "gateway_core_limit_delay_seconds",
                "Time from the moment at which the core finds a new session until its rates are limited",
                buckets=[*buckets, ("+Inf", delays.sessions)],
                sum_value=delays.seconds,
            )

    def _describe_hub(self, statistics: WebhookCounts) -> Iterator[Metric]:
        for name, help_text, value in (
            ("webhooks", "Webhooks, registered and declared", statistics.webhooks),
            ("webhook_paused", "Webhooks that are paused since they fail in a row", statistics.paused),
            ("webhook_waiting", "Messages that wait for a webhook's next attempt", statistics.waiting),
        ):
            yield GaugeMetricFamily(f"gateway_api_{name}", help_text, value)
        attempts = {("delivered",): statistics.delivered, ("failed",): statistics.failed}
        for name, help_text, labels, values in (
            ("webhook_attempts", "Attempts to deliver a message", ["result"], attempts),
            ("webhook_skipped", "Messages given up after the last attempt", [], {(): statistics.skipped}),
            ("webhook_dropped", "Messages dropped because too many waited", [], {(): statistics.dropped}),
        ):
            yield _make_counter(f"gateway_api_{name}", help_text, values, labels)

    def _describe_dependencies(self, dependencies: Iterable[Dependency]) -> Iterator[Metric]:
        states = GaugeMetricFamily(
            "gateway_dependency_state",
            "Health of a dependency: 0 ok or unused, 1 unknown, 2 degraded, 3 failed",
            labels=["dependency"],
        )
        for dependency in dependencies:
            states.add_metric([dependency.name], dependency.state.severity)
        yield states
        if (remaining := self._host.certificate_remaining) is not None:
            help_text = "Time until the TLS certificate of the API ends"
            yield GaugeMetricFamily("gateway_certificate_remaining_seconds", help_text, remaining)


def _make_counter(name: str, help_text: str, values: Mapping[Any, float], labels: list[str]) -> Metric:
    """Return a counter with the given labels. `values` maps the values of the labels to the value of the
    sample."""
    family = CounterMetricFamily(name, help_text, labels=labels)
    for label_values, value in values.items():
        family.add_metric(label_values, value)
    return family
