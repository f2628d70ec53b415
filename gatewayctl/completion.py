"""Words that a shell completes: what the gateway has at that moment, and the fields of its lists; and the
command that prints the programs with which shells do so."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from gateway_contract.contract import Enumeration, Method, columns_of
from gatewayctl import terminal
from gatewayctl.client.errors import ClientError
from gatewayctl.client.gateway import RemoteGateway
from gatewayctl.command import command
from gatewayctl.invocation import chosen_context
from gatewayctl.texts import line

#: The newest records of a log, of which the words are: another one would find nothing.
_RECENT = 1000
#: Seconds that a user waits for a word.
_TIMEOUT = 3.0

#: Words with their descriptions, for the beginning of a word.
Words = Callable[[RemoteGateway, str], Iterable[tuple[str, str]]]


def offered(ctx: click.Context, words: Words, incomplete: str) -> list[CompletionItem]:
    """Nothing after a failure: its text would stand in the line that the user types."""
    try:
        found = words(RemoteGateway(chosen_context(ctx), timeout=_TIMEOUT), incomplete)
        # The shell shows them as they are.
        return [
            CompletionItem(word, help=line(about))
            for word, about in found
            if word.startswith(incomplete) and word.isprintable()
        ]
    except ClientError:
        return []


class Offered(click.ParamType[str]):
    """A text, completed with words of the gateway."""

    name = "text"

    def __init__(self, words: Words) -> None:
        self._words = words

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return offered(ctx, self._words, incomplete)


def listed(path: str, key: str, name: str, about: str) -> Offered:
    """The words are a field of the records of a list, described by another one."""

    def words(gateway: RemoteGateway, incomplete: str) -> Iterable[tuple[str, str]]:
        return [(str(each[name]), str(each[about] or "")) for each in gateway.get(path)[key]]

    return Offered(words)


def recent(path: str, key: str, name: str) -> Offered:
    """The words are the values of a field in the newest records of a log."""

    def words(gateway: RemoteGateway, incomplete: str) -> Iterable[tuple[str, str]]:
        found = gateway.get(path, limit=_RECENT)[key]
        return [(each, "") for each in sorted({each[name] for each in found if each[name]})]

    return Offered(words)


class Known(click.ParamType[str]):
    """A text, completed with words that are known without the gateway. `fields` are those that it names."""

    name = "text"

    def __init__(self, words: Iterable[str], fields: Iterable[str] = ()) -> None:
        self._words = tuple(words)
        self.fields = tuple(fields)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(word) for word in self._words if word.startswith(incomplete)]


def orders(fields: Iterable[str]) -> Known:
    """The words are fields by which a list is sorted, with - for descending order after those
    without."""
    names = tuple(fields)
    return Known([*names, *(f"-{name}" for name in names)])


def conditions(fields: Mapping[str, Any]) -> Known:
    """The words are FIELD=, and FIELD=VALUE where the type of the field has few values."""
    words = []
    for name, kind in fields.items():
        members = list(kind) if isinstance(kind, type) and issubclass(kind, Enumeration) else []
        words += [f"{name}={member}" for member in members] or [f"{name}="]
    return Known(words, fields)


def fields_of(method: type[Method[Any]]) -> dict[str, Any]:
    """Return the fields by which the list of a method is filtered and sorted, with their types."""
    return {name: column.type for name, column in columns_of(method).items()}


#: The variable by which a shell asks for completions.
VARIABLE = "_GATEWAYCTL_COMPLETE"
#: The name of the file in which each shell looks for it.
FILES = {"bash": "gatewayctl", "zsh": "_gatewayctl", "fish": "gatewayctl.fish"}


@command()
@click.argument("shell", type=click.Choice(tuple(FILES)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Prints the completion for a shell, which the package has installed already.

    In ~/.bashrc: eval "$(gatewayctl completion bash)"
    """
    terminal.write(source(ctx.find_root().command, shell))


def source(root: click.Command, shell: str) -> str:
    """Return the program for a shell."""
    made = get_completion_class(shell)
    if made is None:
        raise ValueError(f"there is no completion for {shell}")
    return made(root, {}, "gatewayctl", VARIABLE).source().strip() + "\n"
