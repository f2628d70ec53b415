"""`python -m tools.documents` writes the files of the checkout that come from the code: the OpenAPI
document, the list of routes, the interface files of the core and the hub, the man pages, the completions of
gatewayctl, the environment file, and pages of the reference."""

import json
from pathlib import Path

from gateway_api.base.settings import USERS
from gateway_api.cli.api import routes_text
from gateway_api.hub.interface import HUB
from gateway_api.web.app import routes_of
from gateway_api.web.openapi import make_document
from gateway_contract.contract import interface_text
from gateway_contract.core.interface import CORE
from gatewayctl.__main__ import gatewayctl
from gatewayctl.completion import FILES, generate_program
from tools.documents import man, operations, reference


def texts() -> dict[str, str]:
    """Return the texts of all files that come from the code, by their paths."""
    document = make_document(routes_of(USERS))
    pages = {
        "configuration": reference.configuration_page(),
        **operations.pages(document),
        "commands": reference.commands_page(),
        "environment": reference.environment_page(),
        "values": reference.values_page(),
    }
    return {
        "etc/openapi.json": json.dumps(document, indent=2, ensure_ascii=False) + "\n",
        "etc/routes.txt": routes_text(),
        f"gateway_contract/{CORE.name}.varlink": interface_text(CORE),
        f"gateway_api/hub/{HUB.name}.varlink": interface_text(HUB),
        "etc/gateway-api.env": "".join(reference.environment_file()),
        **{f"etc/man/{name}": text for name, text in man.pages().items()},
        **{f"etc/completion/{name}": generate_program(gatewayctl, shell) for shell, name in FILES.items()},
        **{f"docs/reference/{name}.md": "".join(page) for name, page in pages.items()},
    }


if __name__ == "__main__":
    root = Path(__file__).parents[2]
    for path, text in texts().items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(text)
