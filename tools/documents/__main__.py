"""`python -m tools.documents` writes the files of the checkout that come from the code: the OpenAPI
document, the list of routes, the interface files of the core and the hub, the man pages, the completions of
gatewayctl and the summaries of its commands, the environment file, and pages of the reference."""

import json
from pathlib import Path

from gateway_api.base.settings import USERS
from gateway_api.cli.api import routes_text
from gateway_api.hub.interface import HUB
from gateway_api.web.app import routes_of
from gateway_api.web.openapi import make_document
from gateway_contract.contract import interface_text
from gateway_contract.core.interface import CORE
from gateway_contract.program import summary
from gatewayctl.__main__ import gatewayctl
from gatewayctl.completion import FILES, source
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
        **{f"etc/completion/{name}": source(gatewayctl, shell) for shell, name in FILES.items()},
        **{f"docs/reference/{name}.md": "".join(page) for name, page in pages.items()},
        "gatewayctl/summaries.py": _summaries(),
    }


def _summaries() -> str:
    """The help of gatewayctl has them without an import of its commands."""
    found = {name: summary(command) for name, command in gatewayctl.commands.items()}
    lines = (
        f"    {json.dumps(name)}: {json.dumps(said, ensure_ascii=False)},\n" for name, said in found.items()
    )
    return (
        '"""The first sentence of each command\'s help: `make openapi` writes them."""\n\n'
        f"# ruff: noqa: E501\n\nSUMMARIES = {{\n{''.join(lines)}}}\n"
    )


if __name__ == "__main__":
    root = Path(__file__).parents[2]
    for path, text in texts().items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(text)
