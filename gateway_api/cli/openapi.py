"""Documents about the API, without a running gateway. `python -m gateway_api.cli.openapi` prints OpenAPI."""

import json
import sys

from flask import Flask

from gateway_api.base.settings import TOKEN, USERS, Profile
from gateway_api.web.access import access_of
from gateway_api.web.app import register
from gateway_api.web.openapi.document import document
from gateway_api.web.route import template


def text() -> str:
    return json.dumps(document(_routes(USERS)), indent=2, ensure_ascii=False) + "\n"


def routes() -> str:
    """All routes of both profiles, one a line: method, path, access and profile."""
    found = [("# method", "path", "access", "profile")]
    for profile in (USERS, TOKEN):
        app = _routes(profile)
        for rule in app.url_map.iter_rules():
            access = access_of(app.view_functions[rule.endpoint])
            path = template(rule.rule)
            (method,) = (rule.methods or set()) - {"HEAD"}
            found.append((method, path, access.value if access else "", profile.name))
    widths = [max(map(len, column)) for column in zip(*found, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in found)
    return "".join(f"{line}\n" for line in lines)


def _routes(profile: Profile) -> Flask:
    app = Flask("gateway_api", static_folder=None)
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    register(app, profile)
    return app


if __name__ == "__main__":
    sys.stdout.write(text())
