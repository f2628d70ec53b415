"""The files for people that come from the code, as committed; the man pages, complete."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from gatewayctl.__main__ import gatewayctl
from tools.documents.__main__ import generate_files
from tools.documents.pages import generate_command_pages, generate_man_pages

ROOT = Path(__file__).parents[3]


def commands(command: click.Command, path: str = "gatewayctl") -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from commands(inner, f"{path} {name}")


def test_the_committed_files_are_those_of_the_code() -> None:
    made = generate_files()
    assert {path: (ROOT / path).read_text() for path in made} == made
    folders = ("etc/man", "etc/completion")
    held = {f"{folder}/{path.name}" for folder in folders for path in (ROOT / folder).iterdir()}
    assert held == {path for path in made if path.startswith(folders)}


def test_every_command_and_option_is_explained_and_in_a_page() -> None:
    made = generate_command_pages(gatewayctl)
    for path, command in commands(gatewayctl):
        assert command.help, path
        first = path.split(" ")[:2]
        assert command.get_short_help_str(1000).split(" ")[0] in made["-".join(first) + ".1"], path
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, (path, parameter.name)
                assert parameter.help.endswith("."), (path, parameter.name)


def test_a_line_that_begins_with_a_dot_is_text() -> None:
    made = click.Group("gatewayctl", help="First.\n\n.SH is not a command of roff here, nor is \\fB.")
    assert (
        "\n\\&.SH is not a command of roff here, nor is \\efB.\n"
        in generate_command_pages(made)["gatewayctl.1"]
    )


@pytest.mark.parametrize("name", ["gateway-api.8", "gateway-core.8"])
def test_every_command_of_a_service_is_described(name: str) -> None:
    _, commands, _ = re.split(r"(?m)^\.SH COMMANDS|^\.SH FILES", generate_man_pages()[name])
    for command in commands.split(".SS ")[1:]:
        # A sentence below the usage.
        assert re.match(r"[a-z][^\n]+\n\.PP\n[A-Z][^\n]+\.\n", command), command
