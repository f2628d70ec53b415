"""Command-line programs with several commands: groups that import commands on first use, and the help of
groups."""

import shlex
import sys
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class


@add_completion_class
class QuotedBashComplete(BashComplete):
    """Completion for bash that quotes the inserted words. Without the quotes, a username such as `x;reboot`,
    which a subscriber can choose, would run a second command after Enter."""

    def format_completion(self, item: CompletionItem) -> str:
        return f"{item.type},{shlex.quote(item.value)}" if item.value else super().format_completion(item)


class LateCommands(UserDict[str, Any]):
    """Map from name to command. `load` imports a command when the command is used for the first time."""

    def __init__(self, names: Iterable[str], load: Callable[[str], click.Command]) -> None:
        super().__init__(dict.fromkeys(names))
        self._load = load

    def __getitem__(self, name: str) -> click.Command:
        if self.data[name] is None:
            self[name] = self._load(name)
        return self.data[name]  # type: ignore[no-any-return]


class Group(click.Group):
    """Group of commands whose help shows whole sentences. `sections` maps the title of each section of the
    help to the names of its commands."""

    group_class = type

    def __init__(
        self, *args: Any, sections: Mapping[str, Iterable[str]] | None = None, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._sections = sections or {}

    def list_sections(self) -> Iterator[tuple[str, Sequence[str]]]:
        """Return the sections of the help, each with the names of its commands. Commands without a section
        come first."""
        in_sections = {name for names in self._sections.values() for name in names}
        others = [name for name in self.commands if name not in in_sections]
        for title, names in {"Commands": others, **self._sections}.items():
            if names:
                yield title, list(names)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # click cuts the sentences at the width of the terminal.
        width = max(map(len, self.commands))
        for title, names in self.list_sections():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), summarize(self.commands[name])) for name in names])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # click cuts the sentences here, too.
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        items = [CompletionItem(name, help=summarize(self.commands[name])) for name in names]
        return items + click.Command.shell_complete(self, ctx, incomplete)


def summarize(command: click.Command) -> str:
    """Return the first sentence of the help text of a command."""
    return command.get_short_help_str(limit=1000)


def run(program: click.Command, name: str, words: Sequence[str] | None = None) -> int:
    """Run a program with the arguments `words`, by default the arguments of the process. Return the exit
    status of the command. The status is 2 for wrong arguments, with the usage on standard error, and 1 after
    Ctrl-C."""
    try:
        return program.main(words, name, standalone_mode=False) or 0
    except click.UsageError as error:
        error.show()
        return error.exit_code
    except click.Abort as error:
        sys.stderr.write(f"{name}: stopped before the end{error}\n")
        return 1
