"""`python -m gateway_api.cli.openapi` prints the OpenAPI document. No gateway has to run."""

import json
import sys

from flask import Flask

from gateway_api.base.settings import USERS
from gateway_api.web.app import register
from gateway_api.web.openapi.document import document


def text() -> str:
    app = Flask("gateway_api", static_folder=None)
    register(app, USERS)
    return json.dumps(document(app), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
