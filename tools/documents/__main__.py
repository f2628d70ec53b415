"""`python -m tools.documents` writes the files of the checkout that are derived from the code: the OpenAPI
and the AsyncAPI document, the list of routes, the interface files of the core and the hub, the man pages, the
completions of gatewayctl, the environment files, and pages of the reference."""

import json
from pathlib import Path

from gateway_api.base.settings import USERS
from gateway_api.cli.api import format_routes
from gateway_api.hub.interface import HUB
from gateway_api.web.app import list_routes
from gateway_api.web.openapi import make_document
from gateway_contract.contract import format_interface
from gateway_contract.core.interface import CORE
from gatewayctl.__main__ import gatewayctl
from gatewayctl.completion import COMPLETION_FILES, generate_program
from tools.documents import messages, operations, pages


def generate_files() -> dict[str, str]:
    """Return a map from path to text, for all files that are derived from the code."""
    document = make_document(list_routes(USERS))
    return {
        "etc/openapi.json": json.dumps(document, indent=2, ensure_ascii=False) + "\n",
        "etc/asyncapi.json": json.dumps(messages.generate_document(document), indent=2, ensure_ascii=False)
        + "\n",
        "etc/routes.txt": format_routes(),
        f"gateway_contract/{CORE.name}.varlink": format_interface(CORE),
        f"gateway_api/hub/{HUB.name}.varlink": format_interface(HUB),
        "etc/gateway-api.env": pages.render("gateway-api.env.j2"),
        "etc/gateway-relay.env": pages.generate_relay_settings(),
        **{f"etc/man/{name}": text for name, text in pages.generate_man_pages().items()},
        **{
            f"etc/completion/{name}": generate_program(gatewayctl, shell)
            for shell, name in COMPLETION_FILES.items()
        },
        **{f"docs/reference/{name}": text for name, text in pages.generate_reference().items()},
        **{
            f"docs/reference/{name}.md": "".join(page)
            for name, page in operations.generate_pages(document).items()
        },
    }


if __name__ == "__main__":
    root = Path(__file__).parents[2]
    for path, text in generate_files().items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(text)
