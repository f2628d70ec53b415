"""What is the same whichever worker is asked: read from the core and the hub when Prometheus asks."""

import logging
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway_api.base import logs
from gateway_api.base.errors import CoreUnavailable, HubUnavailable
from gateway_api.daemon.commands import Daemon
from gateway_api.hub.client import Hub
from gateway_api.version import VERSION
from gateway_api.web.request_id import request_id

_log = logging.getLogger(__name__)


class GatewayGauges(Collector):
    """While the core is away there are no samples of it: a zero would be a lie, and an alert."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def describe(self) -> Iterator[Metric]:
        """Nothing: or registering would ask the core, which may not be there yet."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        try:
            counts = self._daemon.statistics()
        except CoreUnavailable as error:
            _log.error("scrape without the core: %s", error, extra=logs.extra(request_id=request_id()))
            yield GaugeMetricFamily("gateway_api_core_up", "Whether the core daemon answers", 0)
            return
        yield GaugeMetricFamily("gateway_api_core_up", "Whether the core daemon answers", 1)
        yield GaugeMetricFamily(
            "svc_active_sessions_total", "Total active subscriber sessions", counts.active_sessions
        )
        yield GaugeMetricFamily(
            "svc_vrf_steered_sessions", "VRF-steered CGNAT sessions", counts.vrf_steered_sessions
        )
        yield GaugeMetricFamily("svc_qos_sessions", "Sessions with QoS applied", counts.qos_sessions)


class HubMetrics(Collector):
    """Webhooks and what became of what was for them. Without the hub there are no samples of it."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def describe(self) -> Iterator[Metric]:
        """Nothing, as above."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        try:
            counts = self._hub.counts()
        except HubUnavailable as error:
            _log.error("scrape without the hub: %s", error, extra=logs.extra(request_id=request_id()))
            return
        yield GaugeMetricFamily("gateway_api_webhooks", "Registered webhooks", counts.webhooks)
        yield GaugeMetricFamily(
            "gateway_api_webhook_paused", "Webhooks that are paused since they fail in a row", counts.paused
        )
        yield GaugeMetricFamily(
            "gateway_api_webhook_waiting", "Messages that wait for a webhook's next attempt", counts.waiting
        )
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


class BuildInfo(Collector):
    """What runs, as a label: a join puts it beside any other metric."""

    def collect(self) -> Iterator[Metric]:
        info = GaugeMetricFamily("gateway_api_build_info", "The version that runs", labels=["version"])
        info.add_metric([VERSION], 1)
        yield info


def registry(daemon: Daemon, hub: Hub) -> CollectorRegistry:
    """A registry of these alone: what a library registers by itself isn't ours to publish."""
    own = CollectorRegistry()
    own.register(BuildInfo())
    own.register(GatewayGauges(daemon))
    own.register(HubMetrics(hub))
    return own
