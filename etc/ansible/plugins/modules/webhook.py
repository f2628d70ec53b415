from __future__ import annotations

DOCUMENTATION = r"""
module: webhook
short_description: Register and remove webhooks of a subscriber gateway
version_added: 1.0.0
description:
  - Registers a webhook for a URL, or removes all registered webhooks with the URL.
  - A registered webhook is lost when the API stops. A webhook in C(api.webhooks.receivers) of the
    configuration persists, and belongs in
    the module M(subscriber_gateway.api.config). If the configuration declares the URL, the task with
    O(state=absent) fails.
  - The user needs the role admin.
extends_documentation_fragment: subscriber_gateway.api.gateway
options:
  url:
    description: Receiver of the events, HTTP or HTTPS.
    type: str
    required: true
  events:
    description: Names of the events that the receiver gets.
    type: list
    elements: str
    choices: [session.up, session.down, session.rate]
    default: [session.up, session.down]
  secret:
    description:
      - Secret that signs the deliveries, base64 of 24 to 64 bytes.
      - The API never shows a secret, so another secret alone is no change. To change it, remove the webhook
        first.
    type: str
  state:
    description: Whether there is a webhook with this URL and these events, or none with this URL.
    type: str
    choices: [present, absent]
    default: present
attributes:
  check_mode:
    description: Changes nothing.
    support: full
  diff_mode:
    description: Shows the events of the webhooks with this URL.
    support: full
author:
  - The authors of the subscriber gateway (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Tell the NOC about the end of each session
  subscriber_gateway.api.webhook:
    url: https://noc.example/hook
    events: [session.down]
    secret: "{{ noc_secret }}"

- name: Tell the NOC nothing any longer
  subscriber_gateway.api.webhook:
    url: https://noc.example/hook
    state: absent
"""

RETURN = r"""
webhook:
  description: The webhook; null if there is none, and for a new webhook in check mode.
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.subscriber_gateway.api.plugins.module_utils.gateway import make_argument_spec, run

PATH = "/webhooks"
EVENTS = ["session.up", "session.down", "session.rate"]


def main():
    module = AnsibleModule(
        argument_spec=make_argument_spec(
            url={"type": "str", "required": True},
            events={"type": "list", "elements": "str", "choices": EVENTS, "default": EVENTS[:2]},
            secret={"type": "str", "no_log": True},
            state={"type": "str", "choices": ["present", "absent"], "default": "present"},
        ),
        supports_check_mode=True,
    )
    run(module, lambda gateway: change(module, gateway))


def change(module, gateway):
    """Register or remove the webhook, and return the result of the module. Raises GatewayError if the gateway
    refuses the change."""
    params = module.params
    events = params["events"] if params["state"] == "present" else []
    present = [each for each in gateway.get(PATH)["webhooks"] if each["url"] == params["url"]]
    kept = next((each for each in present if events and set(each["events"]) == set(events)), None)
    # A declared webhook stays beside a registered one, and only the configuration removes it.
    obsolete = [
        each for each in present if each is not kept and (each["origin"] == "registered" or not events)
    ]
    is_new = bool(events) and kept is None
    if not module.check_mode:
        if is_new:
            body = {"url": params["url"], "events": events}
            if params["secret"] is not None:
                body["secret"] = params["secret"]
            # Before the removal, so that no event is lost.
            kept = gateway.request("POST", PATH, body).data
        for each in obsolete:
            gateway.request("DELETE", f"{PATH}/{each['id']}")
    result = {"changed": is_new or bool(obsolete), "webhook": kept}
    if module._diff:
        former = "".join(f"{each['url']}: {', '.join(each['events'])}\n" for each in present)
        result["diff"] = {
            "before": former,
            "after": f"{params['url']}: {', '.join(events)}\n" if is_new else former if kept else "",
        }
    return result


if __name__ == "__main__":
    main()
