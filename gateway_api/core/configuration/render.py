"""The files that the gateway's services read, made of a configuration.

accel-ppp (PPPoE and IPoE), FRR, a RADIUS client or pppd's chap-secrets, and the defaults of the shaping.
Nothing is escaped here: the schema lets no text into a configuration that a service would not read as it is.
"""

import re
from collections.abc import Mapping

from jinja2 import Environment, PackageLoader, StrictUndefined, TemplateError

from gateway_api.core.configuration.sections import Configuration
from gateway_api.core.configuration.steps import StepFailed

ACCEL_PPP = "accel-ppp.conf"
FRR = "frr.conf"
CHAP_SECRETS = "chap-secrets"
RADIUS_CLIENT = "radiusclient.conf"
RADIUS_SERVERS = "radius-servers"
QOS = "qos.conf"

_ALWAYS = (ACCEL_PPP, FRR, QOS)
_WITH_RADIUS = (RADIUS_CLIENT, RADIUS_SERVERS)
_WITHOUT_RADIUS = (CHAP_SECRETS,)

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
#: All at once, at the start: a commit must not depend on files that an upgrade may be replacing.
_templates = {
    name: _environment.get_template(f"{name}.j2") for name in (*_ALWAYS, *_WITH_RADIUS, *_WITHOUT_RADIUS)
}


def render(configuration: Configuration) -> Mapping[str, str]:
    """The text of each file, by its name. Raises StepFailed."""
    subscribers_from = _WITH_RADIUS if configuration.radius.server else _WITHOUT_RADIUS
    return {name: _rendered(name, configuration) for name in (*_ALWAYS, *subscribers_from)}


def _rendered(name: str, configuration: Configuration) -> str:
    try:
        return _templates[name].render(vars(configuration))
    except TemplateError as error:
        raise StepFailed(f"render {name}", str(error)) from error
