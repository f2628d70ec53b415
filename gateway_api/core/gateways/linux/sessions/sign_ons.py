"""The sign-ons that failed at the sources, for the journal."""

import logging
import time

from gateway_api.core.gateways.linux.demux.admission import AccessVlan
from gateway_api.core.gateways.linux.sources.source import FailureSource, SourceFailure, SourceUnavailable
from gateway_api.core.sessions.journal import Journal
from gateway_api.wire.configuration import Configuration
from gateway_api.wire.core.sessions import SessionType

#: Seconds between two readings.
_PAUSE = 5.0

_log = logging.getLogger(__name__)


class SignOnWatch:
    """Reads failures from time to time; without `failures` there are none. Any thread may configure."""

    def __init__(
        self, configuration: Configuration, failures: FailureSource | None, journal: Journal
    ) -> None:
        self._configuration = configuration
        self._failures = failures
        self._journal = journal
        self._warned = False

    def configure(self, configuration: Configuration) -> None:
        """The VLANs of access interfaces are those of its trunks."""
        self._configuration = configuration

    def run(self) -> None:
        """Reads until the process ends."""
        while self._failures is not None:
            self.read(self._failures)
            time.sleep(_PAUSE)

    def read(self, failures: FailureSource) -> None:
        """Reads once."""
        try:
            found = failures.read()
        except SourceUnavailable as error:
            (_log.debug if self._warned else _log.warning)("failed sign-ons are not known: %s", error)
            self._warned = True
            return
        self._warned = False
        for failure in found:
            self._add(failures.name, failure)

    def _add(self, source: str, failure: SourceFailure) -> None:
        trunks = self._configuration.interfaces.trunks
        vlan = AccessVlan.named(failure.access_interface, trunks)
        self._journal.sign_on_failed(
            failure.reason,
            failure.at,
            type=SessionType.PPPOE,
            username=failure.username,
            mac_address=failure.mac_address,
            access_interface=failure.access_interface,
            outer_vlan_id=None if vlan is None else vlan.outer_vlan_id,
            inner_vlan_id=None if vlan is None else vlan.vlan_id,
            source=source,
        )
