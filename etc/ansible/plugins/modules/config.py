from __future__ import annotations

DOCUMENTATION = r"""
module: config
short_description: Change the configuration of a subscriber gateway
version_added: 1.0.0
description:
  - Stages the changes that make the running configuration contain a partial configuration, and commits
    them, all or none.
  - A configuration that contains the partial configuration already is not changed.
  - The task fails if there is something to change while the candidate of the gateway has staged changes of
    others, or while another commit waits for its confirmation.
  - If the task fails or runs in check mode, the module discards its own changes of the candidate.
  - The user needs the role admin.
extends_documentation_fragment: subscriber_gateway.api.gateway
options:
  state:
    description:
      - With V(present), the module commits the changes.
      - With V(confirmed), the module confirms the last commit if this commit waits for a confirmation. The
        task fails if the running configuration does not contain O(config) and O(secrets), for example because
        the deadline is over.
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
    config: &appliance
      cgnat:
        handoff_gateway: 10.255.1.6
    confirm_seconds: 120

- name: Check that the appliance forwards
  ansible.builtin.command: ping -c 3 192.0.2.53
  changed_when: false

- name: Keep the new appliance
  subscriber_gateway.api.config:
    config: *appliance
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

from contextlib import contextmanager
from dataclasses import dataclass
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


@dataclass
class Candidate:
    """Candidate with the changes of the task. `difference` is empty if nothing changes. `deadline` is that of
    the last commit if this commit waits for its confirmation."""

    etag: str
    deadline: int | None
    difference: str = ""
    impact: dict | None = None
    is_committed: bool = False


@contextmanager
def stage(module, gateway):
    """Stage the changes that make the running configuration contain the partial configuration, and yield the
    candidate. At the end of the block, discard the changes unless they were committed. Raises GatewayError if
    the gateway refuses the changes, or if the candidate has changes of others."""
    before = gateway.request("GET", f"{PATH}/compare")
    deadline = before.data["confirm_deadline"]
    operations = plan(module.params["config"], module.params["secrets"], gateway.get(PATH))
    if not operations:
        yield Candidate(before.etag, deadline)
        return
    if before.data["diff"]:
        raise GatewayError(
            f"{gateway.url}: the candidate has staged changes, which this task would commit too; commit or "
            f"discard them first:\n{before.data['diff']}"
        )
    candidate = Candidate(
        gateway.request("POST", f"{PATH}/edit", {"operations": operations}, before.etag).etag, deadline
    )
    try:
        after = gateway.get(f"{PATH}/compare")
        candidate.difference, candidate.impact = after["diff"], after["impact"]
        yield candidate
    finally:
        if not candidate.is_committed:
            discard(module, gateway, candidate.etag)


def plan(config, secrets, running):
    """Return the operations that change the running configuration to contain the partial configuration.
    Raises GatewayError if the partial configuration is invalid."""
    try:
        if paths := list_secrets(config):
            raise ValueError(f"{', '.join(paths)}: a secret belongs in the option secrets")
        return plan_operations(running, merge(config, secrets))
    except ValueError as error:
        raise GatewayError(f"config: {error}") from error


def change(module, gateway):
    """Commit the changes that make the running configuration contain the partial configuration, and return
    the result of the module. Raises GatewayError if the gateway refuses the changes."""
    with stage(module, gateway) as candidate:
        result = {
            "changed": bool(candidate.difference),
            "difference": candidate.difference,
            "impact": candidate.impact if candidate.difference else None,
            "commit": None,
            "confirm_deadline": candidate.deadline,
        }
        if not candidate.difference:
            if candidate.deadline is not None:
                module.warn(
                    f"{gateway.url}: the former configuration returns at {format_time(candidate.deadline)} "
                    "unless the last commit is confirmed"
                )
            return result
        if candidate.deadline is not None:
            raise GatewayError(
                f"{gateway.url}: another commit waits for its confirmation; confirm it, or wait until the "
                f"former configuration has returned at {format_time(candidate.deadline)}"
            )
        if module._diff:
            result["diff"] = {"prepared": candidate.difference + describe_impact(candidate.impact)}
        if module.check_mode:
            predict(module, gateway, candidate)
        else:
            result["commit"] = commit(module, gateway, candidate.etag)
            result["confirm_deadline"] = result["commit"]["confirm_deadline"]
            candidate.is_committed = True
    return result


def confirm(module, gateway):
    """Confirm the last commit if it waits for a confirmation, and return the result of the module. Raises
    GatewayError if the gateway cannot be asked, or if the running configuration does not contain the partial
    configuration."""
    try:
        with stage(module, gateway) as candidate:
            # In check mode, the task before has not committed.
            if candidate.difference and not module.check_mode:
                raise GatewayError(
                    f"{gateway.url}: the running configuration does not contain config; perhaps the former "
                    f"configuration has returned at the deadline:\n{candidate.difference}"
                )
        is_waiting = candidate.deadline is not None
        if is_waiting and not module.check_mode:
            gateway.request("POST", f"{PATH}/confirm")
    except GatewayError as error:
        raise GatewayError(
            f"{error}; the last commit is not confirmed: if it had confirm_seconds, the former "
            "configuration returns by itself",
            error.status,
            error.errors,
        ) from error
    return {"changed": is_waiting, "confirm_deadline": None}


def predict(module, gateway, candidate):
    """Warn of sessions that a commit would end. Raises GatewayError if a commit would be refused."""
    impact, limit = candidate.impact, module.params["max_sessions_dropped"]
    if impact is None:
        raise GatewayError(
            f"{gateway.url}: the gateway would refuse the commit, because values are missing or contradict "
            f"one another; without check mode, the error names them:\n{candidate.difference}"
        )
    if limit is not None and impact["sessions_dropped"] > limit:
        raise GatewayError(
            f"{gateway.url}: {impact['sessions_dropped']} sessions would end; max_sessions_dropped is {limit}"
        )
    if impact["sessions_dropped"]:
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
