from __future__ import annotations

DOCUMENTATION = r"""
name: contexts
short_description: Gateways to which gatewayctl has logged in
version_added: 1.0.0
description:
  - Each context of C(gatewayctl) is a host, and each label of a context is a group.
  - A host has the variables C(gateway_url), C(gateway_ca) and C(gateway_username), and
    C(ansible_connection=local), because the modules
    of this collection call the API from the machine that runs C(ansible-playbook).
  - The file of the inventory must have a name that ends with C(gateways.yml) or C(gateways.yaml).
options:
  plugin:
    description: Name of the plugin.
    type: str
    required: true
    choices: [subscriber_gateway.api.contexts]
  path:
    description: The file of the contexts. The default is C(gatewayctl/contexts.json) in E(XDG_CONFIG_HOME),
      or in C(~/.config).
    type: path
  tokens:
    description:
      - Whether a host also has the variable C(gateway_token), the token of the last C(gatewayctl login).
        The token is valid for an hour by
        default, and C(ansible-inventory) shows it.
    type: bool
    default: false
author:
  - The authors of the subscriber gateway (!UNKNOWN)
"""

EXAMPLES = r"""
# gateways.yml
plugin: subscriber_gateway.api.contexts
"""

import json
import os
import sys
from pathlib import Path

from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin


class InventoryModule(BaseInventoryPlugin):
    """Inventory of the contexts of gatewayctl."""

    NAME = "subscriber_gateway.api.contexts"

    def verify_file(self, path):
        """Return True if this plugin can read the file of the inventory."""
        return super().verify_file(path) and path.endswith(("gateways.yml", "gateways.yaml"))

    def parse(self, inventory, loader, path, cache=True):
        """Add a host for each context. Raises AnsibleParserError if the contexts cannot be read."""
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
        contexts = self.get_option("path") or Path(home) / "gatewayctl" / "contexts.json"
        try:
            document = json.loads(Path(contexts).read_bytes())
            for name, context in document["contexts"].items():
                self._add_context(name, context)
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise AnsibleParserError(
                f"cannot read the contexts of gatewayctl in {contexts}: {error}"
            ) from error

    def _add_context(self, name, context):
        self.inventory.add_host(name)
        fields = ("url", "ca", "username", *(["token"] if self.get_option("tokens") else []))
        variables = {f"gateway_{field}": context[field] for field in fields if context.get(field)}
        variables |= {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        for variable, value in variables.items():
            self.inventory.set_variable(name, variable, value)
        for label in context.get("labels") or ():
            group = self.inventory.add_group(self._sanitize_group_name(label))
            self.inventory.add_child(group, name)
