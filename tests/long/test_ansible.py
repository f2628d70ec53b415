"""The Ansible collection: its own checks, and playbooks on a running gateway."""

import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import bcrypt
import pytest

from tests.support.manual import ROOT, steps
from tests.support.receivers import Received, Receiver, answer
from tests.support.stack import PATIENCE, Api, running_stack, wait_for

COLLECTION = ROOT / "etc/ansible"
CONFIG = "/system/config"
#: The names of sessions as the lab has them.
SUBSCRIBER = "subscriber000001@lab.example"

_HEADER = """\
- hosts: all
  gather_facts: false
  module_defaults:
    group/subscriber_gateway.api.gateway:
      gateway_url: "{{ gateway_url }}"
      gateway_ca: "{{ gateway_ca }}"
      gateway_username: "{{ username | default(gateway_username) }}"
      gateway_password: "{{ password | default(gateway_password) }}"
  tasks:
"""


class Ansible:
    """An environment with ansible-core and the collection, for a gateway that gatewayctl has logged in to."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs = programs
        self.folder = folder
        self.environment = {
            # Where pip finds packages.
            **{name: value for name, value in os.environ.items() if name.startswith("PIP_")},
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "ANSIBLE_COLLECTIONS_PATH": str(folder / "collections"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_REMOTE_TEMP": str(folder / "remote"),
        }

    def run(self, *words: str | Path, status: int = 0, cwd: Path | None = None) -> str:
        """Run a program, and return what it prints. The test fails if the exit status is another one."""
        ended = subprocess.run(
            words,
            cwd=cwd or self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            check=False,
        )
        assert ended.returncode == status, ended.stdout
        return ended.stdout

    def play(self, tasks: str, *options: str, status: int = 0) -> str:
        """Run a playbook with these tasks, and return what it prints."""
        playbook = self.folder / "playbook.yml"
        playbook.write_text(_HEADER + indent(dedent(tasks), "    "))
        return self.run("ansible-playbook", "-i", "gateways.yml", *options, playbook, status=status)


class Endless(Receiver):
    """A gateway that sends a response byte by byte, without an end."""

    def converse(self, connection: socket.socket, number: int) -> None:
        self.read(connection, number)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while True:
            self.pause(0.2)
            connection.sendall(b" ")


def changed(printed: str) -> int:
    """Return how many tasks of a playbook were changes."""
    (count,) = re.findall(r" changed=(\d+) ", printed)
    return int(count)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the programs of ansible-core."""
    environment = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    subprocess.run(
        [
            *(environment / "bin/pip", "-qq", "--disable-pip-version-check", "install", "--require-hashes"),
            *("--no-deps", "-r", ROOT / "requirements/ansible.lock"),
        ],
        check=True,
    )
    return environment / "bin"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running_stack(tmp_path_factory.mktemp("state"), sessions=40) as (api, _):
        yield api


@pytest.fixture(scope="module")
def ansible(programs: Path, stack: Api, tmp_path_factory: pytest.TempPathFactory) -> Ansible:
    made = Ansible(programs, tmp_path_factory.mktemp("ansible"))
    made.run("ansible-galaxy", "collection", "install", COLLECTION)
    (made.folder / "gateways.yml").write_text("plugin: subscriber_gateway.api.contexts\n")
    variables = made.folder / "group_vars/all"
    variables.mkdir(parents=True)
    password = stack.environment["ADMIN_PASSWORD"]
    (variables / "vault.yml").write_text(f"gateway_password: {password}\n")
    (made.folder / "password").write_text(password)
    made.run(
        *(Path(sys.executable).with_name("gatewayctl"), "login", "--context", "bng1", "--label", "north"),
        *("--url", stack.url, "--ca", stack.environment["GATEWAY_CA"]),
        *("--user", stack.environment["ADMIN_USER"], "--password-file", "password"),
    )
    return made


@pytest.fixture
def api(stack: Api) -> Iterator[Api]:
    """The gateway, which has its former configuration again after the test."""
    before = stack.get(CONFIG)
    yield stack
    stack.forget_tokens()
    assert stack.get(f"{CONFIG}/compare", "admin")["diff"] == ""
    if stack.get(CONFIG) != before:
        assert stack.send("PUT", f"{CONFIG}/candidate", json=before).ok
        assert stack.send("POST", f"{CONFIG}/commit", json={}).ok


def make_tls(api: Api) -> ssl.SSLContext:
    """Return the TLS of a server with the certificate of the gateway."""
    certificate = Path(api.environment["GATEWAY_CA"])
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, certificate.with_name("key.pem"))
    return tls


def read(api: Api, *names: str) -> Any:
    """Return a value of the running configuration."""
    value = api.get(CONFIG)
    for name in names:
        value = value[name]
    return value


def test_the_collection_passes_the_checks_of_ansible_test(programs: Path, tmp_path: Path) -> None:
    ansible = Ansible(programs, tmp_path)
    folder = tmp_path / "ansible_collections/subscriber_gateway/api"
    shutil.copytree(COLLECTION, folder)
    subprocess.run(["git", "init", "--quiet", folder], check=True)
    subprocess.run(["git", "-C", folder, "add", "--all"], check=True)
    # ansible-test downloads it, and Python has it.
    bootstrap = tmp_path / ".ansible/test/cache/get_pip_24_2.py"
    bootstrap.parent.mkdir(parents=True)
    bootstrap.write_text("import ensurepip\n\nensurepip.bootstrap()\n")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    printed = ansible.run(
        "ansible-test", "sanity", "--local", "--requirements", "--python", python, cwd=folder
    )
    assert printed.count("Running sanity test") > 20


PLAYBOOK = """
- subscriber_gateway.api.facts:

- subscriber_gateway.api.config:
    config: &wanted
      qos: {default_down: 200mbit}
      demux: {idle_timeout: "600", vlan_profiles: {pppoe: {vlan_range: 1000-3998}}}
      bgp:
        neighbors:
          10.255.0.2: {description: null}
          10.255.0.6: null
          10.255.0.10: {remote_as: 64514, maximum_prefixes: null}
      api: {users: {jo: {role: operator}}}
      subscribers: {dns_servers: [192.0.2.53]}
    secrets:
      radius: {secret: not-for-any-log}
      api: {users: {jo: {password_hash: "{{ hash }}"}}}
    comment: from Ansible
    confirm_seconds: 600

- ansible.builtin.command: "true"
  changed_when: false

- subscriber_gateway.api.config:
    config: *wanted
    state: confirmed

- subscriber_gateway.api.rate:
    username: subscriber000001@lab.example
    rate_down: 250 Mbit/s
    rate_up: 50mbit

- subscriber_gateway.api.webhook:
    url: http://127.0.0.1:9/hook
    secret: whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw
"""


def test_a_playbook_that_runs_twice_changes_nothing_the_second_time(ansible: Ansible, api: Api) -> None:
    hashed = bcrypt.hashpw(b"a password of jo", bcrypt.gensalt(4)).decode()
    options = ("-e", json.dumps({"hash": hashed}), "-vvv")
    first, second = ansible.play(PLAYBOOK, *options), ansible.play(PLAYBOOK, *options)
    assert changed(first) == 4
    assert changed(second) == 0
    assert "not-for-any-log" not in first + second
    assert hashed not in first + second
    assert read(api, "qos", "default_down") == "200mbit"
    assert read(api, "bgp", "neighbors") == [
        {"address": "10.255.0.2", "remote_as": 64513},
        {"address": "10.255.0.10", "remote_as": 64514},
    ]
    assert api.log_in("jo", "a password of jo").ok
    assert api.get(f"{CONFIG}/archive")["running"]["comment"] == "from Ansible"
    assert api.get(f"{CONFIG}/compare", "admin")["confirm_deadline"] is None
    (session,) = api.get(f"/subscribers?username={SUBSCRIBER}")["sessions"]
    assert (session["rate_down"], session["rate_up"]) == (250_000_000, 50_000_000)
    (webhook,) = api.get("/webhooks")["webhooks"]
    assert webhook["events"] == ["session.up", "session.down"]


def test_check_mode_shows_the_difference_and_the_ended_sessions_and_changes_nothing(
    ansible: Ansible, api: Api
) -> None:
    tasks = """
    - subscriber_gateway.api.config:
        config: {demux: {trunks: [trunk0]}}
    - subscriber_gateway.api.disconnect:
        username: subscriber000002@lab.example
    - subscriber_gateway.api.rate:
        type: dhcp
        rate_down: 300mbit
    """
    audited = api.get("/audit?action=configuration.commit", "admin")["count"]
    before = api.get("/subscribers")
    ended = [each["id"] for each in before["sessions"] if each["access_interface"].startswith("trunk1.")]
    printed = ansible.play(tasks, "--check", "--diff")
    assert '- demux.trunks = ["trunk0","trunk1"]\n+ demux.trunks = ["trunk0"]\n' in printed
    assert f"{len(ended)} sessions would end: {', '.join(map(str, ended))}\n" in printed
    assert "down 100000000" in printed
    assert "down 300000000" in printed
    assert changed(printed) == 3
    assert f"{len(ended)} sessions would end" in ansible.play(tasks, "--check")
    assert api.get("/subscribers") == before
    assert api.get(f"{CONFIG}/compare", "admin")["diff"] == ""
    assert api.get("/audit?action=configuration.commit", "admin")["count"] == audited


@pytest.mark.parametrize("mode", [(), ("--check",)])
def test_more_ended_sessions_than_allowed_fail_the_task_and_change_nothing(
    ansible: Ansible, api: Api, mode: tuple[str, ...]
) -> None:
    before = api.get("/subscribers")
    printed = ansible.play(
        """
        - subscriber_gateway.api.config:
            config: {demux: {trunks: [trunk0]}}
            max_sessions_dropped: 0
        """,
        *mode,
        status=2,
    )
    ended = [each for each in before["sessions"] if each["access_interface"].startswith("trunk1.")]
    assert re.search(rf"{api.url}: .*\b{len(ended)} sessions\b", printed)
    assert changed(printed) == 0
    assert api.get("/subscribers") == before


def test_a_play_that_turns_the_api_off_fails_and_the_gateway_returns(ansible: Ansible, api: Api) -> None:
    before = api.get(CONFIG)
    printed = ansible.play(
        """
        - subscriber_gateway.api.config:
            config: {api: {enabled: false}}
            confirm_seconds: 20
        - subscriber_gateway.api.config:
            state: confirmed
        """,
        status=2,
    )
    assert re.search(rf"{api.url}: .*\(status 503\); the last commit is not confirmed", printed)
    assert "changed=1 " in printed
    wait_for("the former configuration", lambda: api.send("GET", CONFIG).ok)
    assert api.get(CONFIG) == before


def test_a_play_that_removes_its_own_user_fails_and_the_gateway_returns(ansible: Ansible, api: Api) -> None:
    before = api.get(CONFIG)
    printed = ansible.play(
        """
        - subscriber_gateway.api.config:
            config: {api: {users: {admin: null, operator: {role: admin}}}}
            confirm_seconds: 20
        - subscriber_gateway.api.config:
            state: confirmed
        """,
        status=2,
    )
    assert re.search(rf"{api.url}: Incorrect username or password \(status 401\)", printed)
    api.forget_tokens()

    def returned() -> bool:
        # More failed logins would be delayed.
        time.sleep(2)
        return api.log_in("admin", api.environment["ADMIN_PASSWORD"]).ok

    wait_for("the former configuration", returned)
    assert api.get(CONFIG) == before


def forward(api: Api, request: Received) -> bytes:
    """Send a request of a module to the gateway, and return the response."""
    method, path, _ = request.line.split()
    headers = {name: value for name, value in request.headers if name in ("Authorization", "If-Match")}
    response = api.session.request(
        method, api.url + path, headers=headers, data=request.body, timeout=PATIENCE
    )
    etag = response.headers.get("ETag", "")
    return answer(response.status_code, f"ETag: {etag}", "Connection: close", body=response.content)


def test_a_lost_response_to_a_commit_says_that_the_gateway_may_have_committed(
    ansible: Ansible, api: Api
) -> None:
    def lose_commit(request: Received) -> bytes:
        response = forward(api, request)
        if "/commit " not in request.line:
            return response
        assert b'"committed":true' in response
        return b""

    def count_returns() -> int:
        return int(api.get("/audit?action=configuration.return", "admin")["count"])

    before, returns = api.get(CONFIG), count_returns()
    with Receiver(lose_commit, tls=make_tls(api)) as proxy:
        printed = ansible.play(
            f"""
            - subscriber_gateway.api.config:
                gateway_url: https://localhost:{proxy.port}
                config: {{qos: {{default_up: 70mbit}}}}
                confirm_seconds: 4
            """,
            status=2,
        )
    assert (
        "the gateway may have committed the changes: if it has, the former configuration returns" in printed
    )
    wait_for("the return", lambda: count_returns() > returns)
    assert api.get(CONFIG) == before


def test_a_change_of_another_before_the_commit_is_not_committed(ansible: Ansible, api: Api) -> None:
    def meddle(request: Received) -> bytes:
        if "/commit " in request.line:
            staged = {"path": "system.hostname", "value": "of-another"}
            assert api.send("POST", f"{CONFIG}/set", json=staged).ok
        return forward(api, request)

    before = api.get(CONFIG)
    with Receiver(meddle, tls=make_tls(api)) as proxy:
        printed = ansible.play(
            f"""
            - subscriber_gateway.api.config:
                gateway_url: https://localhost:{proxy.port}
                config: {{qos: {{default_up: 70mbit}}}}
            """,
            status=2,
        )
    assert "(status 412)" in printed
    assert "may still be in the candidate" in " ".join(printed.split())
    assert api.get(CONFIG) == before
    assert "of-another" in api.get(f"{CONFIG}/compare", "admin")["diff"]
    assert api.send("POST", f"{CONFIG}/discard").ok


def test_a_confirmation_after_the_deadline_fails_the_task(ansible: Ansible, api: Api) -> None:
    printed = ansible.play(
        """
        - subscriber_gateway.api.config:
            config: &change {qos: {default_up: 80mbit}, demux: {idle_timeout: "301"}}
            confirm_seconds: 1
        - ansible.builtin.wait_for: {timeout: 4}
        - subscriber_gateway.api.config:
            config: *change
            state: confirmed
        """,
        status=2,
    )
    assert "the running configuration does not contain config" in printed
    assert '+ qos.default_up = "80mbit"' in printed


def test_staged_changes_of_others_are_never_committed(ansible: Ansible, api: Api) -> None:
    staged = {"path": "system.hostname", "value": "of-another"}
    assert api.send("POST", f"{CONFIG}/set", json=staged).ok
    tasks = """
    - subscriber_gateway.api.config:
        config: {qos: {default_up: 30mbit}}
    """
    printed = ansible.play(tasks, status=2)
    assert "the candidate has staged changes" in printed
    assert "of-another" in printed
    assert "of-another" in api.get(f"{CONFIG}/compare", "admin")["diff"]
    assert api.send("POST", f"{CONFIG}/discard").ok


def test_a_commit_of_another_that_waits_is_not_confirmed_by_a_change(ansible: Ansible, api: Api) -> None:
    staged = {"path": "system.hostname", "value": "for-a-minute"}
    assert api.send("POST", f"{CONFIG}/set", json=staged).ok
    assert api.send("POST", f"{CONFIG}/commit", json={"confirm_seconds": 600}).ok
    tasks = """
    - subscriber_gateway.api.config:
        config: {{system: {{hostname: {}}}}}
    """
    assert "another commit waits" in ansible.play(tasks.format("bng9"), status=2)
    printed = ansible.play(tasks.format("for-a-minute"))
    assert changed(printed) == 0
    assert "unless the last commit is confirmed" in " ".join(printed.split())
    assert api.get(f"{CONFIG}/compare", "admin")["confirm_deadline"] is not None
    assert changed(ansible.play("- subscriber_gateway.api.config: {state: confirmed}")) == 1


@pytest.mark.parametrize(
    ("task", "error"),
    [
        ("config: {config: {qos: {default_down: fast}}}", "qos.default_down: must be a number and a unit"),
        ("config: {config: {qos: {down: 1gbit}}}", "qos.down"),
        ("config: {config: {cgnat: {vrf_name: trunk0}}}", "cgnat.vrf_name"),
        ("config: {config: {radius: {secret: abcdef}}}", "radius.secret: a secret belongs in"),
        ("config: {secrets: {radius: {secret: '********'}}}", "radius.secret: must not be"),
        ("config: {config: {qos: {default_up: 9mbit}}, confirm_seconds: 0}", "must be 1 to 86400"),
        ("rate: {username: a, rate_down: fast}", "rate_down must be a number and a unit"),
        ("rate: {type: pppoe, rate_down: '50'}", "rate_down: must be at least 8 kbit/s"),
        ("rate: {rate_down: 1mbit}", "one of the following is required: type, username"),
        ("disconnect: {ip_address: here}", "ip_address: "),
        ("webhook: {url: 'ftp://127.0.0.1'}", "url: "),
        ("facts: {gateway_url: 'http://127.0.0.1:9'}", "gateway_url must be https://HOST:PORT"),
        ("facts: {gateway_url: 'https://127.0.0.1:9'}", "127.0.0.1:9: no response to POST"),
        ("facts: {gateway_password: wrong}", "Incorrect username or password"),
        ("facts: {gateway_ca: /etc/hostname}", "no response"),
        ("facts: {gateway_timeout: 0}", "gateway_timeout must be at least 1 second"),
    ],
)  # fmt: skip
def test_an_error_names_the_field_and_the_rule_and_changes_nothing(
    ansible: Ansible, api: Api, task: str, error: str
) -> None:
    before = api.get(CONFIG)
    printed = ansible.play(f"- subscriber_gateway.api.{task}", status=2)
    assert error in " ".join(printed.split())
    assert "Traceback" not in printed
    assert api.get(CONFIG) == before


def test_sessions_are_disconnected_once(ansible: Ansible, api: Api) -> None:
    task = "- subscriber_gateway.api.disconnect: {username: subscriber000004@lab.example}"
    assert api.get("/subscribers?username=subscriber000004@lab.example")["count"] == 1
    assert changed(ansible.play(task)) == 1
    assert api.get("/subscribers?username=subscriber000004@lab.example")["count"] == 0
    assert changed(ansible.play(task)) == 0


def test_temporary_rates_are_set_once_and_made_permanent_by_a_task_without_an_end(
    ansible: Ansible, api: Api
) -> None:
    task = "- subscriber_gateway.api.rate: {{username: subscriber000005@lab.example, rate_down: 1gbit{}}}"
    temporary, permanent = task.format(", expires_in: 3600"), task.format("")
    counts = [changed(ansible.play(each)) for each in (temporary, temporary, permanent, permanent)]
    assert counts == [1, 0, 1, 0]


def test_a_webhook_is_replaced_and_removed(ansible: Ansible, api: Api) -> None:
    task = "- subscriber_gateway.api.webhook: {{url: 'http://127.0.0.1:9/replaced', {}}}"
    down, rate, absent = "events: [session.down]", "events: [session.rate]", "state: absent"
    counts = [changed(ansible.play(task.format(each))) for each in (down, down, rate, absent, absent)]
    assert counts == [1, 0, 1, 1, 0]


def test_the_facts_of_a_gateway_are_for_operators_too(ansible: Ansible, api: Api) -> None:
    printed = ansible.play(
        """
        - subscriber_gateway.api.facts:
        - ansible.builtin.debug:
            msg: "{{ gateway.version.product }} {{ gateway.health.state }} {{ gateway.sessions.total }}
              {{ gateway.faults | length }} {{ gateway.config.system.hostname }} {{ gateway.commit.author }}"
          vars: {gateway: "{{ ansible_facts.gateway }}"}
        """,
        "-e",
        json.dumps({"username": "operator", "password": api.environment["OPERATOR_PASSWORD"]}),
    )
    total = api.get("/subscribers/summary")["total"]
    assert f"Subscriber Gateway ok {total} 0 bng1 " in printed


def test_the_inventory_has_a_host_for_each_context_and_a_group_for_each_label(
    ansible: Ansible, api: Api
) -> None:
    listed = json.loads(ansible.run("ansible-inventory", "-i", "gateways.yml", "--list"))
    assert listed["north"]["hosts"] == ["bng1"]
    assert "gateway_token" not in listed["_meta"]["hostvars"]["bng1"]
    printed = ansible.play("- ansible.builtin.debug: {msg: '{{ gateway_username }} at {{ gateway_url }}'}")
    assert f"admin at {api.url}" in printed
    (ansible.folder / "tokens.gateways.yml").write_text(
        "plugin: subscriber_gateway.api.contexts\ntokens: true\n"
    )
    listed = json.loads(ansible.run("ansible-inventory", "-i", "tokens.gateways.yml", "--list"))
    assert "gateway_token" in listed["_meta"]["hostvars"]["bng1"]


def test_a_gateway_that_never_ends_its_response_fails_the_task_at_the_deadline(
    ansible: Ansible, api: Api
) -> None:
    with Endless(tls=make_tls(api)) as receiver:
        url = f"https://localhost:{receiver.port}"
        task = f"- subscriber_gateway.api.facts: {{gateway_url: '{url}', gateway_timeout: 2}}"
        printed = ansible.play(task, status=2)
    assert f"{url}: no response to POST /auth/login: the deadline of 2 s is over" in printed


@pytest.mark.parametrize("body", [b"[1]", b"{}", b"<html>", b"[" * 100_000])
def test_a_response_that_is_not_from_a_gateway_fails_the_task(
    ansible: Ansible, api: Api, body: bytes
) -> None:
    with Receiver(answer(200, "Connection: close", body=body), tls=make_tls(api)) as receiver:
        task = f"- subscriber_gateway.api.facts: {{gateway_url: 'https://localhost:{receiver.port}'}}"
        assert "the response to POST /auth/login is not from a gateway" in ansible.play(task, status=2)


def test_the_lines_of_the_page_work_when_pasted(ansible: Ansible, api: Api) -> None:
    lines = steps("how-to/ansible.md", "bash")
    printed = {title: ansible.run("bash", "-euc", lines[title]) for title, pasted in lines.items() if pasted}
    assert "--bng1" in printed["Inventory"]
    assert '+ qos.default_down = "200mbit"\n' in printed["A first playbook"]
    assert read(api, "qos", "default_up") == "40mbit"
    assert changed(printed["Confirm after a check of your own"]) == 2
    assert read(api, "cgnat", "handoff_gateway") == "10.255.1.6"
    assert api.get(f"{CONFIG}/compare", "admin")["confirm_deadline"] is None
    ansible.run("ansible-playbook", "-i", "gateways.yml", "rates.yml")
