"""pppd, at a commit: it gets other files, and nothing restarts or reloads. pppd and accel-ppp read them at
each sign-on: the subscribers' secrets, or where RADIUS is."""

import re
from functools import partial
from pathlib import Path

from gateway_api.core.configuration.sections import Configuration
from gateway_api.core.configuration.services import Rendered
from gateway_api.core.gateways.linux.daemons.daemon import (
    DaemonAction,
    PlacedFiles,
    PutBack,
    all_or_none,
    check_lines,
    filled,
    template,
)
from gateway_api.core.gateways.linux.daemons.time_limit import CommitLimits

#: The records of its hooks. `packaging/pppoe` names the same place.
RECORDS = Path("/run/gateway-pppoe")

_SECRETS = "chap-secrets"
_WITH_RADIUS, _WITHOUT_RADIUS = ("radiusclient.conf", "radius-servers"), (_SECRETS,)
_NAMES = (*_WITHOUT_RADIUS, *_WITH_RADIUS)
_TEMPLATES = {name: template(name) for name in _NAMES}
_FORMS = {_SECRETS: re.compile(r"#.*|\S+ \* \S+ (\*|[0-9.]+)", re.ASCII)}


class SignOnFiles:
    """A ServiceDaemon."""

    name = "pppd"

    def __init__(self, files: PlacedFiles) -> None:
        self._files = files

    def render(self, configuration: Configuration) -> Rendered:
        """As ServiceDaemon."""
        names = _WITH_RADIUS if configuration.radius.server else _WITHOUT_RADIUS
        return {name: filled(_TEMPLATES[name], configuration) for name in names}

    def verify(self, rendered: Rendered) -> None:
        """As ServiceDaemon."""
        for name, text in rendered.items():
            check_lines(name, text, _FORMS.get(name))

    def apply(self, rendered: Rendered, configuration: Configuration, limits: CommitLimits) -> PutBack:
        """As ServiceDaemon."""
        return all_or_none(partial(self._files.place, name, rendered.get(name)) for name in _NAMES)

    def action(self, rendered: Rendered, configuration: Configuration) -> DaemonAction:
        """As ServiceDaemon."""
        return None
