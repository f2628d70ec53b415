from __future__ import annotations

DOCUMENTATION = r"""
module: rate
short_description: Set the rates of sessions on a subscriber gateway
version_added: 1.0.0
description:
  - Sets the rates of all sessions that match the filters. Later sessions of the subscribers start with the
    rates of RADIUS, or with
    C(qos.default_down) and C(qos.default_up) of the configuration.
  - Sessions that have the rates already are no change. If no session matches, the task succeeds and changes
    nothing.
extends_documentation_fragment:
  - subscriber_gateway.api.gateway
  - subscriber_gateway.api.sessions
options:
  rate_down:
    description:
      - Downstream rate, a number and a unit of bits per second, such as V(250mbit).
      - Without it, the downstream rate stays as it is. One of O(rate_down) and O(rate_up) is required.
    type: str
  rate_up:
    description: Upstream rate, in the format of O(rate_down).
    type: str
  expires_in:
    description:
      - The former rates return by themselves after this number of seconds.
      - A session that has the rates already stays as it is, with or without an end of its temporary rates.
    type: int
attributes:
  check_mode:
    description: Returns the sessions that would get other rates, and changes nothing.
    support: full
  diff_mode:
    description: Shows the former and the new rates of each session.
    support: full
author:
  - The authors of the subscriber gateway (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Give a subscriber 250 Mbit/s
  subscriber_gateway.api.rate:
    username: alice@isp.example
    rate_down: 250mbit
    rate_up: 50mbit

- name: Double a street for an hour
  subscriber_gateway.api.rate:
    interface: trunk0.1002
    rate_down: 2gbit
    expires_in: 3600
"""

RETURN = r"""
matched:
  description: Number of sessions that match the filters.
  returned: success
  type: int
sessions:
  description: Sessions whose rates were changed, as they were before.
  returned: success
  type: list
  elements: dict
job:
  description: The job of the gateway; null if nothing changed, and in check mode.
  returned: success
  type: dict
"""

from itertools import takewhile

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.subscriber_gateway.api.plugins.module_utils.gateway import (
    GatewayError,
    make_argument_spec,
    run,
)
from ansible_collections.subscriber_gateway.api.plugins.module_utils.rates import parse_rate
from ansible_collections.subscriber_gateway.api.plugins.module_utils.sessions import (
    FILTER_OPTIONS,
    FILTERS,
    list_sessions,
    read_filter,
    run_job,
)


def main():
    module = AnsibleModule(
        argument_spec=make_argument_spec(
            **FILTER_OPTIONS,
            rate_down={"type": "str"},
            rate_up={"type": "str"},
            expires_in={"type": "int"},
        ),
        required_one_of=[FILTERS, ("rate_down", "rate_up")],
        supports_check_mode=True,
    )
    run(module, lambda gateway: set_rates(module, gateway))


def set_rates(module, gateway):
    """Set the rates of the matching sessions, and return the result of the module. Raises GatewayError if a
    rate is invalid, or the gateway refuses the change."""
    names = [name for name in ("rate_down", "rate_up") if module.params[name] is not None]
    wanted = {name: _parse(name, module.params[name]) for name in names}
    expires_in = module.params["expires_in"]
    filters = read_filter(module.params)
    matching = list_sessions(gateway, filters)
    # Rates that end do not satisfy a task that sets rates for good.
    temporary = set() if expires_in is not None or not matching else _list_temporary(gateway)
    sessions = [
        each
        for each in matching
        if each["id"] in temporary or any(each[name] != rate for name, rate in wanted.items())
    ]
    job = None
    if sessions and not module.check_mode:
        body = {name: module.params[name] for name in names}
        if expires_in is not None:
            body["expires_in"] = expires_in
        body |= {"filter": filters, "per_second": module.params["per_second"]}
        job = run_job(gateway, "/subscribers/rate", body)
    result = {"changed": bool(sessions), "matched": len(matching), "sessions": sessions, "job": job}
    if module._diff:
        result["diff"] = {
            "before": _format_rates(sessions, {}),
            "after": _format_rates(sessions, wanted),
        }
    return result


def _parse(name, text):
    """Return the rate of an option, in bits per second. Raises GatewayError if the rate is invalid."""
    try:
        return parse_rate(text)
    except ValueError as error:
        raise GatewayError(f"{name} {error}") from error


def _list_temporary(gateway):
    """Return the ids of the sessions with temporary rates."""
    ids = set()
    for page in gateway.list_pages("/qos", "sessions", sort="-rate_expires_at"):
        # In descending order, null comes last.
        found = [each["session_id"] for each in takewhile(lambda each: each["rate_expires_at"], page)]
        ids.update(found)
        if len(found) < len(page):
            break
    return ids


def _format_rates(sessions, rates):
    """Return a line for each session, with its rates in bits per second, or those in `rates`."""
    return "".join(
        f"{each['id']} {each['username']}: down {rates.get('rate_down', each['rate_down'])}, "
        f"up {rates.get('rate_up', each['rate_up'])}\n"
        for each in sessions
    )


if __name__ == "__main__":
    main()
