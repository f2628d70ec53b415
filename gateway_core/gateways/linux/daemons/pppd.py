"""pppd, at a commit: it gets other files, and nothing restarts or reloads. pppd and accel-ppp read them at
each sign-on: the subscribers' secrets, or where RADIUS is."""

import re
from functools import partial
from pathlib import Path
from typing import ClassVar, Self

from gateway_contract.configuration import Configuration
from gateway_contract.core.health import DependencyState
from gateway_core.configuration.workspace import Rendered
from gateway_core.gateways.linux.daemons.daemon import (
    DaemonAction,
    DaemonHost,
    PlacedFiles,
    PutBack,
    ServiceDaemon,
    all_or_none,
    check_lines,
    filled,
    template,
)
from gateway_core.gateways.linux.program import CommitLimits

#: The records of its hooks. `packaging/pppoe` names the same place.
RECORDS = Path("/run/gateway-pppoe")

_SECRETS = "chap-secrets"
_WITH_RADIUS, _WITHOUT_RADIUS = ("radiusclient.conf", "radius-servers"), (_SECRETS,)
_NAMES = (*_WITHOUT_RADIUS, *_WITH_RADIUS)
_TEMPLATES = {name: template(name) for name in _NAMES}
_FORMS = {_SECRETS: re.compile(r"#.*|\S+ \* \S+ (\*|[0-9.]+)", re.ASCII)}


class SignOnFiles(ServiceDaemon):
    """The files, for any pppd and for accel-ppp."""

    name = "pppd"
    effects: ClassVar = {"subscribers.local": "usually none, because each sign-on reads the passwords"}

    @classmethod
    def on(cls, host: DaemonHost) -> Self:
        return cls(host.files)

    def __init__(self, files: PlacedFiles) -> None:
        self._files = files

    def render(self, configuration: Configuration) -> Rendered:
        names = _WITH_RADIUS if configuration.radius.server else _WITHOUT_RADIUS
        return {name: filled(_TEMPLATES[name], configuration) for name in names}

    def verify(self, rendered: Rendered) -> None:
        for name, text in rendered.items():
            check_lines(name, text, _FORMS.get(name))

    def apply(self, rendered: Rendered, configuration: Configuration, limits: CommitLimits) -> PutBack:
        return all_or_none(partial(self._files.place, name, rendered.get(name)) for name in _NAMES)

    def action(self, rendered: Rendered, configuration: Configuration) -> DaemonAction:
        return None


class PppdRadius:
    """A RadiusClient, whose plugin of pppd keeps no count."""

    def look(self) -> tuple[DependencyState, str]:
        return DependencyState.UNKNOWN, "pppd does not tell whether its RADIUS requests get a response."
