from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  gateway_url:
    description:
      - URL of the gateway, such as V(https://bng1.example.net:8443).
      - The environment variable E(GATEWAY_URL) is the default.
    type: str
  gateway_ca:
    description:
      - Path of a PEM file with the CA certificates of the gateway. The gateway's certificate must be signed
        by one of them.
      - The environment variable E(GATEWAY_CA) is the default. Without both, the CA certificates of the
        system are used.
    type: path
  gateway_username:
    description:
      - User of the API.
      - The environment variable E(GATEWAY_USER) is the default.
    type: str
  gateway_password:
    description:
      - Password of the user. Each task logs in with it.
      - The environment variable E(GATEWAY_PASSWORD) is the default.
    type: str
  gateway_token:
    description:
      - Access token, instead of username and password.
      - The environment variable E(GATEWAY_TOKEN) is the default.
    type: str
  gateway_timeout:
    description:
      - Deadline of each request, in seconds.
    type: int
    default: 30
notes:
  - The module runs where the API is reached, usually on the machine that runs C(ansible-playbook), with
    C(connection=local).
  - The action group C(subscriber_gateway.api.gateway) sets the options of the gateway for all modules in
    C(module_defaults).
"""
