from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
description:
  - At least one filter is required. Sessions must match all filters.
  - The gateway works as a job, whose end the module waits for.
  - The user needs the role admin.
options:
  type:
    description: Sessions of this type.
    type: str
    choices: [pppoe, dhcp]
  username:
    description: Sessions of the subscriber with this login.
    type: str
  ip_address:
    description: Sessions with this IPv4 or IPv6 address.
    type: str
  mac_address:
    description: Sessions with this MAC address.
    type: str
  interface:
    description: Sessions with this interface or access interface.
    type: str
  search:
    description:
      - Sessions with this text as a part of the username or the MAC address, and so on, as C(gatewayctl
        subscribers list --search).
    type: str
  per_second:
    description: Number of sessions that the job changes per second at most.
    type: int
    default: 100
"""
