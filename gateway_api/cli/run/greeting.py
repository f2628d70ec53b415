"""What somebody is told who has started it."""

import shlex
from pathlib import Path

from gateway_api.cli.run.state import State


def greeting(state: State, url: str, log: Path | None) -> str:
    """Has the password only with `log`, the file that requests are logged in while a terminal shows the
    greeting: without one, the greeting ends in a log itself."""
    api = 'curl -s --cacert "$GATEWAY_CA" -H "Authorization: Bearer $TOKEN" "$GATEWAY_URL/api/v1'
    environment = shlex.quote(str(state.environment))
    return f"""
The gateway API is running, with invented subscribers. Ctrl-C stops it.

{_in_a_log(state, url) if log is None else _on_a_terminal(state, url, log)}

In another shell:

  . {environment}
  curl --cacert "$GATEWAY_CA" "$GATEWAY_URL/api/v1/health"
  TOKEN=$(curl -s --cacert "$GATEWAY_CA" "$GATEWAY_URL/api/v1/auth/login" \\
    -d '{{"username":"'$ADMIN_USER'","password":"'$ADMIN_PASSWORD'"}}' | cut -d'"' -f4)
  {api}/subscribers?limit=3"
  {api}/subscribers/1"
  {api}/subscribers/1" -X DELETE

"""


def _on_a_terminal(state: State, url: str, log: Path) -> str:
    return f"""\
  Page:      {url}/
  User:      admin
  Password:  {state.passwords["admin"]}
  Log:       {log}

Browsers warn of the certificate, which signs itself. {state.environment} has a user who only reads."""


def _in_a_log(state: State, url: str) -> str:
    return f"""\
  Page:      {url}/

Users and passwords are in {state.environment}"""
