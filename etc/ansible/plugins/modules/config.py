from __future__ import annotations

DOCUMENTATION = r"""
module: config
short_description: Change the configuration of a subscriber gateway
version_added: 1.0.0
description:
  - Stages the changes that make the running configuration contain a partial configuration, and commits
    them, all or none.
  - A configuration that contains the partial configuration already is not changed.
  - The task fails if the candidate of the gateway has staged changes of others, or if another commit waits
    for its confirmation.
  - If the task fails or runs in check mode, the module discards its own changes of the candidate.
  - The user needs the role admin.
extends_documentation_fragment: subscriber_gateway.api.gateway
options:
  state:
    description:
      - With V(present), the module commits the changes.
      - With V(confirmed), the module confirms the last commit if this commit waits for a confirmation.
    type: str
    choices: [present, confirmed]
    default: present
  config:
    description:
      - Partial configuration, a JSON merge patch (RFC 7396) of the document that C(gatewayctl config show
        -o json) prints.
      - Objects merge, null deletes, and any other value replaces the present value, even a list.
      - In place of a list whose items have a key, such as C(bgp.neighbors), an object names items by their
        keys and merges them.
      - Values that are secrets are refused. They belong in O(secrets).
    type: dict
    default: {}
  secrets:
    description:
      - Partial configuration with the values that must not appear in output or logs, in the format of
        O(config).
      - A secret that the gateway has already is no change. The module stages the secret to find out, because
        the API shows no secrets.
    type: dict
    default: {}
  comment:
    description:
      - Comment of the commit in the archive.
    type: str
  confirm_seconds:
    description:
      - The former configuration returns by itself after this number of seconds, unless the commit is
        confirmed before.
      - A later task with O(state=confirmed) confirms the commit, after the checks of the play.
    type: int
  max_sessions_dropped:
    description:
      - The task fails, and changes nothing, if more sessions than this would end.
    type: int
attributes:
  check_mode:
    description: Shows the difference and the sessions that would end, and changes nothing.
    support: full
  diff_mode:
    description: The difference contains the services that reload or restart, and the number of sessions
      that end.
    support: full
author:
  - The authors of the subscriber gateway (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Set the default rates and a BGP neighbour
  subscriber_gateway.api.config:
    config:
      qos:
        default_down: 200mbit
      bgp:
        neighbors:
          "10.255.0.2":
            remote_as: 64513
    secrets:
      bgp:
        neighbors:
          "10.255.0.2":
            password: "{{ bgp_password }}"
    comment: faster for everybody
    max_sessions_dropped: 0

- name: Change the CGNAT appliance, for two minutes
  subscriber_gateway.api.config:
    config:
      cgnat:
        handoff_gateway: 10.255.1.6
    confirm_seconds: 120

- name: Check that the appliance forwards
  ansible.builtin.command: ping -c 3 192.0.2.53
  changed_when: false

- name: Keep the new appliance
  subscriber_gateway.api.config:
    state: confirmed
"""

RETURN = r"""
difference:
  description: Changed lines of the configuration, with secrets masked; empty if nothing changes.
  returned: with O(state=present)
  type: str
  sample: |
    - qos.default_down = "100mbit"
    + qos.default_down = "200mbit"
impact:
  description: Effect of the commit on services and sessions; null if nothing changes.
  returned: with O(state=present)
  type: dict
  sample: {"services": [], "sessions_dropped": 0, "sessions": [], "sessions_held": 0}
commit:
  description: Response of the gateway to the commit; null if there was no commit.
  returned: with O(state=present)
  type: dict
confirm_deadline:
  description:
    - Time at which the former configuration returns, in seconds since 1970; null if no commit waits for a
      confirmation.
    - In check mode, the deadline that was there before the task.
  returned: success
  type: int
errors:
  description: Fields that the gateway refuses, each with C(path) and C(message).
  returned: failure
  type: list
  elements: dict
status:
  description: HTTP status of the failed request; null if there was no response.
  returned: failure
  type: int
"""

from datetime import datetime

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.subscriber_gateway.api.plugins.module_utils.configuration import (
    list_secrets,
    merge,
    plan_operations,
)
from ansible_collections.subscriber_gateway.api.plugins.module_utils.gateway import (
    GatewayError,
    make_argument_spec,
    run,
)

PATH = "/system/config"


def main():
    module = AnsibleModule(
        argument_spec=make_argument_spec(
            state={"type": "str", "choices": ["present", "confirmed"], "default": "present"},
            config={"type": "dict", "default": {}},
            secrets={"type": "dict", "default": {}, "no_log": True},
            comment={"type": "str"},
            confirm_seconds={"type": "int"},
            max_sessions_dropped={"type": "int"},
        ),
        supports_check_mode=True,
    )
    act = confirm if module.params["state"] == "confirmed" else change
    run(module, lambda gateway: act(module, gateway))


def confirm(module, gateway):
    """Confirm the last commit if it waits for a confirmation, and return the result of the module. Raises
    GatewayError if the gateway cannot be asked."""
    try:
        is_waiting = gateway.get(f"{PATH}/compare")["confirm_deadline"] is not None
        if is_waiting and not module.check_mode:
            gateway.request("POST", f"{PATH}/confirm")
    except GatewayError as error:
        raise GatewayError(
            f"{error}; the last commit is not confirmed: if it had confirm_seconds, the former configuration "
            "returns by itself",
            error.status,
            error.errors,
        ) from error
    return {"changed": is_waiting, "confirm_deadline": None}


def change(module, gateway):
    """Commit the changes that make the running configuration contain the partial configuration, and return
    the result of the module. Raises GatewayError if the gateway refuses the changes."""
    before = gateway.request("GET", f"{PATH}/compare")
    if before.data["diff"]:
        raise GatewayError(
            f"{gateway.url}: the candidate has staged changes, which this task would commit too; commit or "
            f"discard them first:\n{before.data['diff']}"
        )
    result = {
        "changed": False,
        "difference": "",
        "impact": None,
        "commit": None,
        "confirm_deadline": before.data["confirm_deadline"],
    }
    operations = plan(module.params["config"], module.params["secrets"], gateway.get(PATH))
    if operations:
        etag = gateway.request("POST", f"{PATH}/edit", {"operations": operations}, before.etag).etag
        try:
            result.update(preview(gateway, result["confirm_deadline"]))
            if result["changed"]:
                finish(module, gateway, result, etag)
        finally:
            if result["commit"] is None:
                discard(module, gateway, etag)
    if result["confirm_deadline"] is not None and not result["changed"]:
        end = format_time(result["confirm_deadline"])
        module.warn(
            f"{gateway.url}: the former configuration returns at {end} unless the last commit is confirmed"
        )
    return result


def plan(config, secrets, running):
    """Return the operations that change the running configuration to contain the partial configuration.
    Raises GatewayError if the partial configuration is invalid."""
    try:
        if paths := list_secrets(config):
            raise ValueError(f"{', '.join(paths)}: a secret belongs in the option secrets")
        return plan_operations(running, merge(config, secrets))
    except ValueError as error:
        raise GatewayError(f"config: {error}") from error


def preview(gateway, deadline):
    """Return the results that describe the staged changes. `deadline` is that of another commit. Raises
    GatewayError if another commit waits for its confirmation, because a commit would confirm it."""
    comparison = gateway.get(f"{PATH}/compare")
    if not comparison["diff"]:
        return {}
    if deadline is not None:
        raise GatewayError(
            f"{gateway.url}: another commit waits for its confirmation; confirm it, or wait until the former "
            f"configuration has returned at {format_time(deadline)}"
        )
    return {"changed": True, "difference": comparison["diff"], "impact": comparison["impact"]}


def finish(module, gateway, result, etag):
    """Commit the staged changes, or only check them in check mode, and complete the result. Raises
    GatewayError if the gateway refuses the commit, or would refuse it."""
    impact, limit = result["impact"], module.params["max_sessions_dropped"]
    if module._diff:
        result["diff"] = {"prepared": result["difference"] + describe_impact(impact)}
    if not module.check_mode:
        result["commit"] = commit(module, gateway, etag)
        result["confirm_deadline"] = result["commit"]["confirm_deadline"]
    elif impact is None:
        raise GatewayError(
            f"{gateway.url}: the gateway would refuse the commit, because values are missing or contradict "
            f"one another; without check mode, the error names them:\n{result['difference']}"
        )
    elif limit is not None and impact["sessions_dropped"] > limit:
        raise GatewayError(
            f"{gateway.url}: {impact['sessions_dropped']} sessions would end; max_sessions_dropped is {limit}"
        )
    elif impact["sessions_dropped"]:
        module.warn(f"{gateway.url}: {describe_impact(impact)}")


def commit(module, gateway, etag):
    """Commit the candidate, and return the response. Raises GatewayError if the commit fails."""
    names = ("comment", "confirm_seconds", "max_sessions_dropped")
    body = {name: module.params[name] for name in names if module.params[name] is not None}
    try:
        return gateway.request("POST", f"{PATH}/commit", body, etag).data
    except GatewayError as error:
        if error.status is not None:
            raise
        seconds = module.params["confirm_seconds"]
        remedy = (
            "look at `gatewayctl config archive`"
            if seconds is None
            else f"if it has, the former configuration returns by itself after {seconds} s"
        )
        raise GatewayError(f"{error}; the gateway may have committed the changes: {remedy}") from error


def discard(module, gateway, etag):
    """Discard the staged changes. If the gateway does not discard them, warn that they stay."""
    try:
        gateway.request("POST", f"{PATH}/discard", if_match=etag)
    except GatewayError as error:
        module.warn(f"{error}; the changes of this task may still be in the candidate")


def describe_impact(impact):
    """Return lines about the effect of a commit. There are no lines if the candidate is invalid."""
    if impact is None:
        return ""
    services = [f"{each['name']}: {each['action']}\n" for each in impact["services"]]
    ids = ", ".join(map(str, impact["sessions"]))
    sessions = f"{impact['sessions_dropped']} sessions would end{f': {ids}' if ids else ''}\n"
    held = impact.get("sessions_held")
    more = f"{held} of them only when a commit with confirm_seconds is confirmed\n" if held else ""
    return "".join([*services, sessions, more])


def format_time(seconds):
    """Return a time in the time zone of this machine. `seconds` counts from 1970."""
    return datetime.fromtimestamp(seconds).astimezone().isoformat(sep=" ", timespec="seconds")


if __name__ == "__main__":
    main()
