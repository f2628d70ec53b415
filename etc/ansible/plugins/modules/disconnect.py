from __future__ import annotations

DOCUMENTATION = r"""
module: disconnect
short_description: End sessions on a subscriber gateway
version_added: 1.0.0
description:
  - Ends all sessions that match the filters. The devices of the subscribers then sign on again by themselves.
  - The task is a change if it ends a session. If no session matches, the task succeeds and changes nothing.
extends_documentation_fragment:
  - subscriber_gateway.api.gateway
  - subscriber_gateway.api.sessions
attributes:
  check_mode:
    description: Returns the sessions that would end, and ends none.
    support: full
  diff_mode:
    description: Shows the sessions that end.
    support: full
author:
  - The authors of the subscriber gateway (!UNKNOWN)
"""

EXAMPLES = r"""
- name: End the sessions of a subscriber
  subscriber_gateway.api.disconnect:
    username: alice@isp.example

- name: End all sessions on a VLAN, ten per second
  subscriber_gateway.api.disconnect:
    interface: trunk0.1002
    per_second: 10
"""

RETURN = r"""
sessions:
  description: Sessions that were ended.
  returned: success
  type: list
  elements: dict
job:
  description: The job of the gateway; null if no session matches, and in check mode.
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.subscriber_gateway.api.plugins.module_utils.gateway import make_argument_spec, run
from ansible_collections.subscriber_gateway.api.plugins.module_utils.sessions import (
    FILTER_OPTIONS,
    FILTERS,
    list_sessions,
    read_filter,
    run_job,
)


def main():
    module = AnsibleModule(
        argument_spec=make_argument_spec(**FILTER_OPTIONS),
        required_one_of=[FILTERS],
        supports_check_mode=True,
    )
    run(module, lambda gateway: disconnect(module, gateway))


def disconnect(module, gateway):
    """End the matching sessions, and return the result of the module. Raises GatewayError if the gateway
    refuses the request, or a session cannot be ended."""
    filters = read_filter(module.params)
    sessions = list_sessions(gateway, filters)
    job = None
    if sessions and not module.check_mode:
        body = {"filter": filters, "per_second": module.params["per_second"]}
        job = run_job(gateway, "/subscribers/disconnect", body)
    result = {"changed": bool(sessions), "sessions": sessions, "job": job}
    if module._diff:
        lines = (f"{each['id']} {each['username']} on {each['access_interface']}\n" for each in sessions)
        result["diff"] = {"before": "".join(lines), "after": ""}
    return result


if __name__ == "__main__":
    main()
