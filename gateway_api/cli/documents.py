"""`python -m gateway_api.cli.documents` writes the files of the checkout that come from the code: the OpenAPI
document, the list of routes, the interface files of the core and the hub, and the man pages and completions
of gatewayctl."""

import json
from pathlib import Path

from flask import Flask

from gateway_api.base.settings import TOKEN, USERS, Profile
from gateway_api.cli.ctl.commands.completion import FILES, source
from gateway_api.cli.ctl.man import pages
from gateway_api.cli.ctl.tree import gatewayctl
from gateway_api.web.access import access_of
from gateway_api.web.app import register
from gateway_api.web.openapi.document import document
from gateway_api.web.parse import template
from gateway_api.wire.contract import description
from gateway_api.wire.core.interface import CORE
from gateway_api.wire.hub import HUB


def openapi() -> str:
    """The OpenAPI document of the profile USERS, as JSON."""
    return json.dumps(document(_app(USERS)), indent=2, ensure_ascii=False) + "\n"


def routes() -> str:
    """All routes of both profiles, one per line: method, path, access and profile."""
    found = [("# method", "path", "access", "profile")]
    for profile in (USERS, TOKEN):
        app = _app(profile)
        for rule in app.url_map.iter_rules():
            access = access_of(app.view_functions[rule.endpoint])
            (method,) = (rule.methods or set()) - {"HEAD"}
            found.append((method, template(rule.rule), access.value if access else "", profile.name))
    widths = [max(map(len, column)) for column in zip(*found, strict=True)]
    return "".join(f"{'  '.join(map(str.ljust, row, widths)).rstrip()}\n" for row in found)


def manual() -> dict[str, str]:
    """The man pages and completions of gatewayctl, by their paths below `etc`."""
    man = {f"man/{name}": text for name, text in pages(gatewayctl).items()}
    return man | {f"completion/{name}": source(gatewayctl, shell) for shell, name in FILES.items()}


def _app(profile: Profile) -> Flask:
    app = Flask("gateway_api", static_folder=None)
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    register(app, profile)
    return app


if __name__ == "__main__":
    root = Path(__file__).parents[2]
    (root / "etc/openapi.json").write_text(openapi())
    (root / "etc/routes.txt").write_text(routes())
    for path, text in manual().items():
        (root / "etc" / path).parent.mkdir(exist_ok=True)
        (root / "etc" / path).write_text(text)
    for contract in (CORE, HUB):
        (root / f"gateway_api/wire/{contract.name}.varlink").write_text(description(contract))
