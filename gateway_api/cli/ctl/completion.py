"""Words that a shell completes: what the gateway has at that moment."""

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

from gateway_api.cli.ctl.failures import CommandFailure
from gateway_api.cli.ctl.gateway import RemoteGateway
from gateway_api.cli.ctl.invocation import chosen_context
from gateway_api.cli.ctl.texts import line

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
    except CommandFailure:
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
