"""Every option of every command of gatewayctl changes what the command does, or the table refuses it."""

import json
import re
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from gateway_api.cli.certificates import ensure
from gateway_client.errors import ClientError
from gatewayctl.__main__ import gatewayctl
from gatewayctl.cli import USAGES, get_label
from tests.support.running_gateway import Gateway, Reply

DOCUMENT = json.loads((Path(__file__).parents[2] / "etc" / "openapi.json").read_text())
#: Fields of the examples that would let a command wait for more.
LAST = {"next_cursor": None, "state": "done", "failed": 0, "unavailable_sources": [], "result": "delivered"}

#: What a command needs beside the option: by its path and the option that chooses its way.
NEEDS: dict[tuple[str, str | None], str] = {
    ("subscribers rate", "TARGET"): "7 --down 9mbit",
    ("subscribers rate", "--where"): "--where type=pppoe --down 9mbit --yes",
    ("subscribers rate", "--file"): "--file rates.csv --yes",
    ("subscribers disconnect", "TARGET"): "7 --yes",
    ("subscribers disconnect", "--interface"): "--interface trunk0.1001 --yes",
    ("subscribers disconnect", "--where"): "--where type=pppoe --yes",
    ("config show", "--revision"): "--revision 1",
    ("config edit", None): "--file candidate.json",
    ("config commit", None): "--yes",
    ("config discard", None): "--yes",
    ("drift", None): "--against candidate.json",
    ("login", None): "--url URL --ca certificate.pem --user alice --password-file password",
    ("contexts label", "NAME"): "second --add west",
    ("restore", None): "backup.json --yes --discard",
    ("users add", None): "new --role admin --password-file password",
    ("users password", None): "alice --password-file password",
    ("users role", None): "alice --role admin",
    ("users remove", None): "alice --yes",
    ("webhooks remove", None): "1 --yes",
}
#: As NEEDS, where an option needs something else, or would change nothing beside it.
OF_OPTION = {
    ("subscribers rate", "--file", "--skip-bad"): "--file bad.csv --yes",
    ("drift", None, "--against"): "",
    ("login", None, "--if-needed"): "",
    ("login", None, "--url"): "--ca certificate.pem --user alice --password-file password",
    ("login", None, "--ca"): "--url URL --user alice --password-file password",
    ("login", None, "--user"): "--url URL --ca certificate.pem --password-file password",
    ("login", None, "--password-file"): "--url URL --ca certificate.pem --user alice",
    ("restore", None, "--discard"): "backup.json --yes",
    ("restore", None, "--yes"): "backup.json --discard",
    ("restore", None, "--secrets"): "secret.json --yes --discard",
    ("restore", None, "--leave-out"): "secret.json --yes --discard",
    ("contexts label", "NAME", "--add"): "second --remove west",
    ("contexts label", "NAME", "--remove"): "second --add east",
    ("users add", None, "--role"): "new --password-file password",
    ("users role", None, "--role"): "alice",
}
VALUES = {
    "--for": "1h", "--until": "2033-03-01T12:00:00Z", "--since": "2026-03-01T12:00:00Z",
    "--at": "2026-03-01T12:00:00Z", "--after": "84a7e8343baf37f9-57", "--down": "8mbit", "--up": "8mbit",
    "--ip": "100.64.0.9", "--mac": "02:00:00:00:00:07", "--where": "type=dhcp", "--filter": "name=x",
    "--sort": "-name", "--file": "other.csv", "--secrets": "secrets.json", "--output": "json",
    "--context": "second", "--url": "https://localhost:1", "--ca": "nowhere.pem", "--password-file": "other",
    "--secret-file": "password", "--event": "session.up", "--comment": "why", "--role": "operator",
    "--against": "backup.json", "--on": "west", "--label": "west", "--remove": "west",
}  # fmt: skip
FILES = {
    "rates.csv": "username,down,up\nnobody,9mbit,9mbit\nNAME,9mbit,9mbit\n",
    "other.csv": "username,down,up\nNAME,7mbit,9mbit\n",
    "bad.csv": "username,down,up\nNAME,9mbit,9mbit\nx\n",
    "candidate.json": '{"system": {"hostname": "x"}}',
    "backup.json": '{"system": {"hostname": "x"}, "api": {"users": []}}',
    "secret.json": '{"system": {"hostname": "x"}, "api": {"users": []}, "new": {"secret": "********"}}',
    "secrets.json": '{"new.secret": "s3cret"}',
    "password": "correct horse battery\n",
    "other": "another password\n",
}
#: Options whose effect no single answer shows: other tests show it.
ELSEWHERE = {
    *(("events", name) for name in ("--failed-sign-ons", "--user", "--trunk", "--output")),
    ("restore", "--dry-run"),
    # A rollout needs several gateways.
    *(("rollout", name) for name in ("--canary", "--wave", "--probe", "--confirm-within", "--state")),
    *(("rollout", name) for name in ("--resume", "--dry-run", "--yes", "--all", "--on", "--output")),
    ("subscribers watch", "--output"),
}


def example(schema: dict[str, Any]) -> Any:
    """What a response of this schema may hold."""
    if "$ref" in schema:
        *_, name = schema["$ref"].split("/")
        return example(DOCUMENT["components"]["schemas"][name])
    if "examples" in schema and not schema.get("properties"):
        return schema["examples"][0]
    if "const" in schema:
        return schema["const"]
    for name in ("anyOf", "oneOf", "allOf"):
        if name in schema:
            return example(schema[name][0])
    if "properties" in schema:
        made = {key: example(field) for key, field in schema["properties"].items()}
        return made | {key: value for key, value in LAST.items() if key in made}
    return [example(schema["items"])] if "items" in schema else schema.get("enum", [1])[0]


def reply(method: str, path: str) -> Reply:
    found = path.partition("?")[0]
    for template, operations in sorted(DOCUMENT["paths"].items(), key=lambda each: "{" in each[0]):
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), found) and method.lower() in operations:
            return _made(template, operations[method.lower()]["responses"])
    return 404, {"status": "error", "message": "No such path"}


def _made(template: str, responses: dict[str, Any]) -> Reply:
    found = [each.get("content", {}) for status, each in responses.items() if status.startswith("2")]
    made = [example(each["application/json"]["schema"]) for each in found if "application/json" in each]
    if not made:
        # A stream ends there.
        return 403, {"detail": "Admin role required"}
    document = made[0]
    for other in made[1:]:
        # Of a dry run, and of what it would start.
        document["data"] |= other["data"]
    if template.endswith("/auth/login"):
        document["access_token"] = token("alice")
    if template.endswith("/system/config"):
        document["data"]["api"]["users"] = [{"username": "alice", "role": "operator"}]
    if template.endswith("/compare"):
        document["data"]["impact"] = {"services": [], "sessions_dropped": 0, "sessions": []}
    return 200, document


def token(subject: str) -> str:
    """A JSON Web Token that has not expired."""
    claims = json.dumps({"sub": subject, "exp": 4_102_444_800}).encode()
    return f"e30.{urlsafe_b64encode(claims).decode().rstrip('=')}.signature"


def leaves(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, inner in group.commands.items():
        at = f"{path} {name}".strip()
        if isinstance(inner, click.Group):
            yield from leaves(inner, at)
        else:
            yield at, inner


def cases() -> Iterator[Any]:
    """Each option of each command, in each way in which it goes."""
    for path, command in leaves(gatewayctl):
        for each in command.params:
            if not isinstance(each, click.Option) or path.startswith("rescue"):
                continue
            # No gateway here is late.
            if get_label(each) == "--deadline":
                continue
            usages = USAGES.get(path, ())
            of = [usage.by for usage in usages if get_label(each) in usage.names] if usages else [None]
            shared = get_label(each) in {"--context", "--all", "--on", "--output", "--columns"}
            for by in ([usages[0].by] if usages else [None]) if shared else of:
                if (path, get_label(each)) not in ELSEWHERE:
                    yield pytest.param(path, by, each, id=f"{path} {by or ''} {get_label(each)}")


class Place:
    """A folder with two contexts, and what answers in a gateway's place."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: list[tuple[Any, ...]] = []
        self.url = ""
        self._known: dict[tuple[str, ...], Any] = {}
        ensure(folder / "certificate.pem", folder / "key.pem", "localhost")
        sessions = reply("GET", "/api/v1/subscribers")[1]["data"]["sessions"]
        for name, text in FILES.items():
            (folder / name).write_text(text.replace("NAME", sessions[0]["username"]))

    def run(self, arguments: list[str]) -> Any:
        """What a run sends, prints, and ends with."""
        held = {"url": self.url, "ca": str(self.folder / "certificate.pem"), "username": "alice"}
        known = {name: {**held, "token": token(name)} for name in ("first", "second")}
        known["second"]["labels"] = ["west"]
        file = self.folder / "gatewayctl" / "contexts.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps({"current": "first", "contexts": known}))
        folder = str(self.folder)
        environment = {
            "XDG_CONFIG_HOME": folder, "XDG_STATE_HOME": folder, "HOME": folder, "TZ": "UTC",
            "GATEWAY_URL": None, "GATEWAY_CA": None, "GATEWAY_USER": None, "GATEWAY_PASSWORD_FILE": None,
        }  # fmt: skip
        self.seen.clear()
        words = [self.url if each == "URL" else each for each in arguments]
        ended = CliRunner(env=environment).invoke(gatewayctl, words, prog_name="gatewayctl")
        failure = ended.exception
        said = failure.lines if isinstance(failure, ClientError) else ()
        if not isinstance(failure, ClientError | SystemExit | click.ClickException | None):
            raise failure
        # Without the moment of the run, in the names of files and 30 days before it, and the salt of a hash.
        printed = re.sub(r"\d{8}T[\d.]+Z", "TIME", ended.output)
        sent = [re.sub(r"(?<=since=)\d{10}(?=&limit=1')", "TIME", repr(each)) for each in self.seen]
        sent = [re.sub(r"\$2b\$[^\"]+", "HASH", each) for each in sent]
        return sent, printed, ended.exit_code, said

    def run_twice(self, arguments: tuple[str, ...]) -> Any:
        """As `run`; the same each time."""
        if arguments not in self._known:
            self._known[arguments] = self.run(list(arguments))
            assert self.run(list(arguments)) == self._known[arguments]
        return self._known[arguments]


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    place = Place(tmp_path_factory.mktemp("options"))
    gateway: Any = Gateway(None, None, place.folder)  # type: ignore[arg-type]
    with gateway.replaced(reply, place.seen) as url:
        place.url = url
        yield place


def words(path: str, by: str | None, command: click.Command, option: click.Option) -> list[str]:
    """A call of the command without the option that needs nothing more."""
    name = get_label(option)
    if (path, by, name) in OF_OPTION:
        return [*path.split(" "), *OF_OPTION[path, by, name].split()]
    needed = NEEDS.get((path, by))
    if needed is None:
        required = [each for each in command.params if isinstance(each, click.Argument) and each.required]
        needed = " ".join([*([by] if by and by.startswith("--") else []), *("1" for _ in required)])
    given = needed.split()
    if name in given:
        at = given.index(name)
        del given[at : at + (1 if option.is_flag else 2)]
    return [*path.split(" "), *given]


@pytest.mark.parametrize(("path", "by", "option"), list(cases()))
def test_an_option_changes_what_the_command_does(
    there: Place, monkeypatch: pytest.MonkeyPatch, path: str, by: str | None, option: click.Option
) -> None:
    monkeypatch.chdir(there.folder)
    command = dict(leaves(gatewayctl))[path]
    without = words(path, by, command, option)
    name = get_label(option)
    choices = option.type.choices if isinstance(option.type, click.Choice) else ["7"]
    value = [] if option.is_flag else [VALUES.get(name, choices[-1])]
    before, after = there.run_twice(tuple(without)), there.run([*without, name, *value])
    assert after != before
    # No table has a column 7: the command says which ones it has, or that it prints none.
    assert "Usage:" not in after[1] or name == "--columns", after
