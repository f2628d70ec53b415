"""All routes of both profiles, with the access to each: `etc/routes.txt`."""

from flask import Flask

from gateway_api.base.settings import TOKEN, USERS, Profile
from gateway_api.web.access import access_of
from gateway_api.web.app import register
from gateway_api.web.parse import template


def routes() -> str:
    """All routes of both profiles, one per line: method, path, access and profile."""
    found = [("# method", "path", "access", "profile")]
    for profile in (USERS, TOKEN):
        app = application(profile)
        for rule in app.url_map.iter_rules():
            access = access_of(app.view_functions[rule.endpoint])
            (method,) = (rule.methods or set()) - {"HEAD"}
            found.append((method, template(rule.rule), access.value if access else "", profile.name))
    widths = [max(map(len, column)) for column in zip(*found, strict=True)]
    return "".join(f"{'  '.join(map(str.ljust, row, widths)).rstrip()}\n" for row in found)


def application(profile: Profile) -> Flask:
    """An application of a profile without its services: it knows its routes, and serves none."""
    app = Flask("gateway_api", static_folder=None)
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    register(app, profile)
    return app
