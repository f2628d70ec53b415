"""The files of the gateway's services: rendered from a configuration, then checked, then applied.

accel-ppp (PPPoE and IPoE), FRR, a RADIUS client or pppd's chap-secrets, and the defaults of the shaping.
Nothing is escaped here: the schema allows no text that a service would misread. FRR's own parser checks its
file where it is installed. The other files are checked line by line.
"""

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network, summarize_address_range
from pathlib import Path
from typing import Protocol

from jinja2 import Environment, PackageLoader, StrictUndefined, TemplateError

from gateway_api.core.configuration.sections import Cgnat, Configuration
from gateway_api.core.configuration.store import StepFailed, disk_step

_ACCEL_PPP, _CHAP_SECRETS, _FRR, _QOS = "accel-ppp.conf", "chap-secrets", "frr.conf", "qos.conf"
_ALWAYS = (_ACCEL_PPP, _FRR, _QOS)
_WITH_RADIUS = ("radiusclient.conf", "radius-servers")
_WITHOUT_RADIUS = (_CHAP_SECRETS,)


def _networks_to_assign(cgnat: Cgnat) -> Iterator[IPv4Network]:
    """The networks of subscribers: from the gateway's address on, without the broadcast address."""
    return summarize_address_range(cgnat.subscriber_gateway + 1, cgnat.source_range[-2])


_environment = Environment(
    loader=PackageLoader("gateway_api.core", "templates"),
    undefined=StrictUndefined,
    autoescape=False,  # noqa: S701 - these are no web pages
    auto_reload=False,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_environment.filters["regex_quoted"] = re.escape
_environment.filters["networks_to_assign"] = _networks_to_assign
#: Where a gateway puts the files for its services, which name one another.
SERVICES_FOLDER = "/var/lib/gateway-core/services"
_environment.globals["services_folder"] = SERVICES_FOLDER
#: A line without effect, by which a configuration of FRR is the gateway's. FRR keeps it, and drops comments.
FRR_MARK = "access-list gateway-core remark Each commit of the gateway replaces this configuration"
_environment.globals["frr_mark"] = FRR_MARK
#: Loaded at the start: a commit must not depend on files that an upgrade may be replacing.
_templates = {
    name: _environment.get_template(f"{name}.j2") for name in (*_ALWAYS, *_WITH_RADIUS, *_WITHOUT_RADIUS)
}

_STEP = "check the services' files"
_VTYSH_TIMEOUT = 5

_SHAPES = {
    _ACCEL_PPP: re.compile(
        r"|#.*|\[[a-z-]+\]|[a-z0-9_./-]+|[a-z0-9-]+=[!-~]([ -~]*[!-~])?|\$include /[a-z/-]+", re.ASCII
    ),
    _CHAP_SECRETS: re.compile(r"#.*|\S+ \* \S+ (\*|[0-9.]+)", re.ASCII),
    _QOS: re.compile(r"#.*|[a-z_]+=[0-9]+", re.ASCII),
}


class GatewayServices(Protocol):
    """The services that run by the files."""

    def apply(self, files: Path, configuration: Configuration) -> None:
        """Makes the services run by the files in a folder, which may be gone after the call. Services that
        run by the same files already continue undisturbed. It takes at most 20 s: the API waits 30 s
        for a commit. Raises StepFailed: then every service runs as before."""

    def resume(self, files: Path, configuration: Configuration) -> None:
        """As `apply`, for the files of the running configuration: a service that refuses does not keep the
        others from running by them. It may last longer. Raises StepFailed of the first one."""


def render(configuration: Configuration) -> Mapping[str, str]:
    """The text of each file, by its name. Raises StepFailed."""
    files = {}
    for name in (*_ALWAYS, *(_WITH_RADIUS if configuration.radius.server else _WITHOUT_RADIUS)):
        try:
            files[name] = _templates[name].render(vars(configuration))
        except TemplateError as error:
            raise StepFailed(f"render {name}", str(error)) from error
    return files


def check(services: Path) -> None:
    """Checks all files in a folder. Raises StepFailed."""
    with disk_step(_STEP):
        # Latin-1 makes one character of any byte.
        texts = {path: path.read_bytes().decode("latin-1") for path in sorted(services.iterdir())}
    for path, text in texts.items():
        if not re.fullmatch(r"([ -~]*\n)+", text):
            raise _failed(f"{path.name} is not lines of printable ASCII")
        lines, shape = text[:-1].split("\n"), _SHAPES.get(path.name)
        for number, line in enumerate(lines, 1):
            if shape is not None and not shape.fullmatch(line):
                raise _failed(f"{path.name}, line {number} is not of its form")
        if repeated := [line for line, times in Counter(lines).items() if line.startswith("[") and times > 1]:
            raise _failed(f"{path.name} has {repeated[0]} twice")
        if path.name == _FRR:
            _check_with_vtysh(path)


def _check_with_vtysh(path: Path) -> None:
    vtysh = shutil.which("vtysh")
    if vtysh is None:
        return
    try:
        run = subprocess.run(
            [vtysh, "--dryrun", "--inputfile", str(path)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VTYSH_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _failed("vtysh did not reply") from error
    # Its status is 0 if the first line of a context fails: of the `exit`s that follow, one leaves the
    # configuration, and the next one vtysh.
    found = re.search(r"line \d+: [ -~]{1,200}", run.stdout + run.stderr)
    if run.returncode or found:
        raise _failed(f"FRR refuses {path.name}: {found.group() if found else 'no reason given'}")


def _failed(reason: str) -> StepFailed:
    return StepFailed(_STEP, reason)
