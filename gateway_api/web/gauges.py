"""The gauges of the gateway, read from the core when Prometheus asks."""

import logging
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gateway_api.daemon.commands import Daemon
from gateway_api.errors import CoreUnavailable
from gateway_api.web.request_id import request_id

_log = logging.getLogger(__name__)


class GatewayGauges(Collector):
    """While the core is away there are no samples of it: a zero would be a lie, and an alert."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Nothing: or registering would ask the core, which may not be there yet."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        try:
            counts = self._daemon.statistics()
        except CoreUnavailable as error:
            _log.error("request_id=%s scrape without the core: %s", request_id(), error)
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


def registry(daemon: Daemon) -> CollectorRegistry:
    """A registry of these alone: what a library registers by itself isn't ours to publish."""
    own = CollectorRegistry()
    own.register(GatewayGauges(daemon))
    return own
