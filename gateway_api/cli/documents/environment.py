"""The page of the environment variables."""

import textwrap
from collections.abc import Iterator

from gateway_api.base.variables import GROUPS
from gateway_api.cli.documents.man import ENVIRONMENT
from gateway_api.cli.documents.markdown import code, paragraph, table

_INTRODUCTION = """
systemd reads the variables of the services from `/etc/gateway-api/gateway-api.env`. An upgrade keeps that
file. A change takes effect with `systemctl restart gateway-api gateway-core`; sessions on Linux stay up. With
an unknown variable that begins with `GATEWAY_API_` the API does not start; the error names it and the nearest
known one. The same is in gateway-api.env(5).
"""


def page() -> str:
    return "".join(_page())


def _page() -> Iterator[str]:
    yield "# Environment variables\n\n" + paragraph(_INTRODUCTION)
    for title, variables in GROUPS.items():
        yield f"## {title}\n\n"
        rows = ((code(each.name), each.meaning, code(each.default)) for each in variables)
        yield table(("variable", "meaning", "default"), rows) + "\n"
    yield "## gatewayctl\n\n" + table(
        ("variable", "meaning"),
        ((", ".join(map(code, names.split(", "))), about) for names, about in ENVIRONMENT),
    )
    yield "\n## See also\n\n- [Programs](programs.md)\n- [Restrict access](../how-to/restrict-access.md)\n"


def file() -> str:
    """`etc/gateway-api.env`: each variable as a comment, with its default."""
    return "".join(_file())


def _file() -> Iterator[str]:
    yield "# Settings of the gateway under systemd: gateway-api.env(5). Commented lines are the defaults.\n"
    for title, variables in GROUPS.items():
        yield f"\n# {title}\n"
        for each in variables:
            lines = textwrap.wrap(each.meaning, 118, break_on_hyphens=False)
            about = "\n".join(f"# {line}" for line in lines)
            yield f"\n{about}\n#{each.name}={each.default}\n"
