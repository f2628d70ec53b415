from __future__ import annotations

DOCUMENTATION = r"""
module: facts
short_description: Read the state of a subscriber gateway
version_added: 1.0.0
description:
  - Reads version, health, faults, numbers of sessions and the configuration of a gateway.
  - The role operator is sufficient.
extends_documentation_fragment: subscriber_gateway.api.gateway
attributes:
  check_mode:
    description: The module changes nothing.
    support: full
  diff_mode:
    description: The module changes nothing.
    support: none
  facts:
    description: The fact C(gateway).
    support: full
author:
  - The authors of the subscriber gateway (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Read the state of the gateway
  subscriber_gateway.api.facts:

- name: Go on only if all dependencies are well
  ansible.builtin.assert:
    that: ansible_facts.gateway.health.state == "ok"
    fail_msg: "{{ ansible_facts.gateway.health.dependencies | rejectattr('state', 'in', ['ok', 'unused']) |
      list }}"
"""

RETURN = r"""
ansible_facts:
  description: The state of the gateway.
  returned: success
  type: dict
  contains:
    gateway:
      description: The state of the gateway.
      returned: success
      type: dict
      contains:
        version:
          description: Product and version, the data of C(GET /system/version).
          returned: success
          type: dict
        health:
          description: State of the gateway and its dependencies, the data of C(GET /system/health/detail).
          returned: success
          type: dict
        faults:
          description: Faults that are present.
          returned: success
          type: list
          elements: dict
        sessions:
          description: Number of sessions, by type.
          returned: success
          type: dict
        config:
          description: The running configuration, with secrets masked.
          returned: success
          type: dict
        commit:
          description: Author, time and comment of the commit of the running configuration; null if unknown.
          returned: success
          type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.subscriber_gateway.api.plugins.module_utils.gateway import make_argument_spec, run


def main():
    module = AnsibleModule(argument_spec=make_argument_spec(), supports_check_mode=True)
    run(module, read)


def read(gateway):
    """Return the result of the module. Raises GatewayError if a request fails."""
    facts = {
        "version": gateway.get("/system/version"),
        "health": gateway.get("/system/health/detail"),
        "faults": gateway.get("/system/faults")["faults"],
        "sessions": gateway.get("/subscribers/summary"),
        "config": gateway.get("/system/config"),
        "commit": gateway.get("/system/config/archive")["running"],
    }
    return {"changed": False, "ansible_facts": {"gateway": facts}}


if __name__ == "__main__":
    main()
