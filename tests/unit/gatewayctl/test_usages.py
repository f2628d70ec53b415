"""The options of gatewayctl that go together: the table has them all, and what it leaves out is refused."""

import re
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from gatewayctl.__main__ import gatewayctl
from gatewayctl.cli import EXCLUSIVE_OPTIONS, USAGES, CliCommand, find_broken_rules, get_label
from gatewayctl.errors import get_exit_status_of_many

USAGE = 2
SHARED = {"--context", "--all", "--on", "--deadline", "--output", "--columns"}


def commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, inner in group.commands.items():
        at = f"{path} {name}".strip()
        if isinstance(inner, click.Group):
            yield from commands(inner, at)
        else:
            yield at, inner


COMMANDS = dict(commands(gatewayctl))


def own(path: str) -> set[str]:
    return {get_label(each) for each in COMMANDS[path].params} - SHARED


def refused() -> Iterator[tuple[str, str, str]]:
    """Each command with a way, and each option that another way uses."""
    for path, usages in USAGES.items():
        for usage in usages:
            if usage.by is not None:
                yield from ((path, usage.by, name) for name in own(path) - set(usage.names))


@pytest.mark.parametrize("path", USAGES)
def test_each_option_of_a_command_with_ways_is_in_the_table_and_no_other_word_is(path: str) -> None:
    named = {name for usage in USAGES[path] for name in usage.names if name is not None}
    assert named == own(path)


@pytest.mark.parametrize(
    ("path", "pair"), [(path, pair) for path, pairs in EXCLUSIVE_OPTIONS.items() for pair in pairs]
)
def test_pairs_are_of_options_that_exist(path: str, pair: tuple[str, str]) -> None:
    assert set(pair) <= SHARED | (own(path) if path else set())


@pytest.mark.parametrize(("path", "by", "name"), sorted(refused()))
def test_an_option_that_a_way_does_not_use_is_refused_with_both_names(path: str, by: str, name: str) -> None:
    said = list(find_broken_rules(path, {by, name}))
    assert any(by in rule and name in rule for rule in said), said


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (
            "subscribers disconnect 7 --per-second 1",
            "--per-second does not go with TARGET: it is for --where.",
        ),
        ("subscribers disconnect", "One of TARGET, --interface, --where is required."),
        (
            "subscribers rate 7 --down 9mbit --yes",
            "--yes does not go with TARGET: it is for --where and --file.",
        ),
        ("subscribers rate 7 --where type=dhcp --up 9mbit", "TARGET and --where exclude each other."),
        ("subscribers rate 7", "TARGET requires --down or --up."),
        ("subscribers rate 7 --up 9mbit --for 1h --until 2h", "--for and --until exclude each other."),
        ("cgnat --stats --limit 1", "--limit does not go with --stats."),
        ("--context x health --all", "--context and --all exclude each other."),
        ("--on west health --all", "--all and --on exclude each other."),
        ("--on west events --after 1-1", "--after and --on exclude each other."),
        ("vlans --deadline 3", "--deadline requires --all or --on."),
        ("--all --deadline 3 events", "--deadline does not go with gatewayctl events."),
        ("contexts label lab", "NAME requires --add or --remove."),
        (
            "--on west config confirm",
            "--on does not go with gatewayctl config confirm: it is for one gateway.",
        ),
        ("--all config confirm", "--all does not go with gatewayctl config confirm: it is for one gateway."),
        ("--context x rescue undo", "--context does not go with gatewayctl rescue undo."),
        ("-o json login", "--output does not go with gatewayctl login."),
        ("-o json backup -", "--output does not go with FILE -: a backup is always JSON."),
    ],
)
def test_a_broken_rule_is_an_error_of_usage(arguments: str, rule: str) -> None:
    ended = CliRunner().invoke(gatewayctl, arguments.split(" "), prog_name="gatewayctl")
    assert ended.exit_code == USAGE
    assert f"Error: {rule}\n" in ended.output


@pytest.mark.parametrize(
    ("count", "status"), [(0, 0), (1, 11), (99, 109), (100, 110), (101, 110), (999, 110)]
)
def test_the_exit_status_of_many_counts_the_gateways_that_failed(count: int, status: int) -> None:
    assert get_exit_status_of_many(count) == status


def test_usages_apply_to_a_program_of_any_name() -> None:
    words = ["subscribers", "rate", "7"]
    ended = CliRunner().invoke(gatewayctl, words, prog_name="gatewayctl (1).pyz")
    assert ended.exit_code == USAGE
    assert "Try 'gatewayctl (1).pyz subscribers rate --help' for help." in ended.output
    assert "Error: TARGET requires --down or --up.\n" in ended.output


@pytest.mark.parametrize("name", ["gatewayctl", "gatewayctl.pyz"])
def test_the_completion_is_for_the_program_as_the_user_called_it(name: str) -> None:
    shown = CliRunner().invoke(gatewayctl, ["completion", "bash"], prog_name=name).output
    assert re.search(rf"(?m)^\s*complete .* {re.escape(name)}$", shown)
    assert "_GATEWAYCTL_COMPLETE=bash_complete" in shown


def test_the_help_imports_nothing_that_only_a_command_needs() -> None:
    run = (
        "import sys; from gatewayctl.__main__ import main; sys.argv = ['gatewayctl', '--help']; main(); "
        "print(*sys.modules, file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=True)
    assert "Find and change the sessions of subscribers." in ended.stdout
    modules = set(ended.stderr.split())
    assert "gatewayctl.commands.subscribers" in modules
    heavy = {
        "requests",
        "ssl",
        "bcrypt",
        "jsonpath",
        "gateway_contract.configuration",
        "gateway_contract.rescue",
    }
    assert modules & heavy == set()


def test_the_help_of_a_group_has_sections_and_cuts_nothing() -> None:
    shown = CliRunner().invoke(gatewayctl, ["--help"]).output
    assert {"Login:", "Subscribers:", "Network:", "Configuration:", "Operation:"} <= set(shown.splitlines())
    assert "..." not in shown.partition("Login:")[2]
    assert "subscribers  Find and change the sessions of subscribers." in shown


@pytest.mark.parametrize(
    ("path", "field", "option"),
    [
        ("subscribers history", "at", "--at"),
        ("subscribers history", "search", "TEXT"),
        ("subscribers list", "mac_address", "--mac"),
        ("subscribers rate", "expires_in", "--for"),
        ("subscribers rate", "filter.color", "--where color"),
        ("subscribers disconnect", "per_second", "--per-second"),
        ("webhooks add", "events.0", "--event"),
        ("webhooks add", "secret", "--secret-file"),
        ("vlans", "color", "--filter color"),
        ("config commit", "confirm_seconds", "--confirm-within"),
        ("config set", "qos.default_down", "qos.default_down"),
    ],
)
def test_an_error_of_the_api_names_the_option_that_set_the_field(path: str, field: str, option: str) -> None:
    # Every command refuses by the table, and knows its options.
    assert all(isinstance(each, CliCommand) for each in COMMANDS.values())
    assert COMMANDS[path].name_option(field) == option
