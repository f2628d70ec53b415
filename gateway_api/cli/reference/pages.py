"""All pages that come from the code."""

from collections.abc import Mapping
from typing import Any

from gateway_api.cli.reference import commands, configuration, environment, operations, values


def pages(openapi: Mapping[str, Any]) -> dict[str, str]:
    """The text of each page by the name of its file. `openapi` is the OpenAPI document."""
    schemas = openapi["components"]["schemas"]
    return {
        "configuration.md": configuration.page(schemas),
        "operations.md": operations.page(openapi),
        "commands.md": commands.page(),
        "environment.md": environment.page(),
        "values.md": values.page(),
    }
