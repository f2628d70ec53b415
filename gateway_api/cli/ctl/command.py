"""Commands and groups of commands as all of `gatewayctl` are: they refuse options that do not go together,
name the option of a field of the API, and show their help without cuts."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click
from click.core import ParameterSource

from gateway_api.cli.ctl.ways import broken_rules

#: The rule of the API that a field breaks which it does not have.
_UNKNOWN = "is not a known field"
#: For the options that a command shares with `gatewayctl`: it may have got them before the command.
SHARED = "gatewayctl."


def label(parameter: click.Parameter) -> str:
    """The name of an option or argument, as users know it: `--at`, `TARGET`."""
    if isinstance(parameter, click.Option):
        return max(parameter.opts, key=len)
    return parameter.human_readable_name.strip("[].")


class Command(click.Command):
    """A command. The parameters have the names of the API's fields."""

    def invoke(self, ctx: click.Context) -> Any:
        """Raises click.UsageError for options that do not go together."""
        own = {label(each): each for each in self.params}
        of_all = ctx.find_root().command.params
        shared = {label(each) for each in of_all if f"{SHARED}{each.name}" in ctx.meta}
        for name in sorted(shared - own.keys()):
            reason = ": it is for one gateway" if name == "--all" and "--context" in own else ""
            raise click.UsageError(f"{name} does not go with {ctx.command_path}{reason}.", ctx)
        given = shared | {name for name, each in own.items() if _is_given(ctx, each)}
        for rule in broken_rules(ctx.command_path.partition(" ")[2], given):
            raise click.UsageError(rule, ctx)
        return super().invoke(ctx)

    def explained(self, path: str, rule: str) -> str:
        """A problem of a request as a line: the option and the rule, and the known fields for an unknown
        one."""
        name = self.spelled(path)
        for each in self.params:
            fields = getattr(each.type, "fields", ())
            if fields and rule == _UNKNOWN and name.partition(" ")[0] == label(each):
                return f"{name}: {rule}; known fields: {', '.join(fields)}"
        return f"{name}: {rule}"

    def spelled(self, path: str) -> str:
        """The option or argument that sets a field of a request: `--at` for `at`, `--where color` for
        `filter.color`. Other paths, such as those of the configuration, stay as they are."""
        field, _, rest = path.partition(".")
        for each in self.params:
            if each.name == field:
                return label(each) if not rest or rest.isdecimal() else f"{label(each)} {rest}"
        filters = [each for each in self.params if each.name == "filters"]
        return f"{label(filters[0])} {path}" if filters else path


class Group(click.Group):
    """A group of commands, whose help has them in sections if there are any."""

    command_class = Command
    group_class = type

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._sections: dict[str, list[str]] = {}

    def add_section(self, title: str, commands: Iterable[click.Command]) -> None:
        """Adds commands below a title of the help."""
        for each in commands:
            self.add_command(each)
            self._sections.setdefault(title, []).append(str(each.name))

    def sections(self) -> Iterator[tuple[str, list[tuple[str, click.Command]]]]:
        """The commands by their names, in their sections; those of no section come first."""
        held = {name for names in self._sections.values() for name in names}
        rest = [name for name in self.commands if name not in held]
        for title, names in {"Commands": rest, **self._sections}.items():
            if names:
                yield title, [(name, self.commands[name]) for name in names]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # click cuts the texts at the width of the terminal.
        width = max(map(len, self.commands))
        for title, commands in self.sections():
            with formatter.section(title):
                rows = [(name.ljust(width), summary(command)) for name, command in commands]
                formatter.write_dl(rows)


def summary(command: click.Command) -> str:
    """The first sentence of its help."""
    return command.get_short_help_str(limit=1000)


def _is_given(ctx: click.Context, parameter: click.Parameter) -> bool:
    name = parameter.name or ""
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE and ctx.params.get(name, True) != ()


def command(name: str | None = None, **more: Any) -> Callable[[Callable[..., Any]], Command]:
    """As `click.command`."""
    return click.command(name, cls=Command, **more)


def group(name: str | None = None, **more: Any) -> Callable[[Callable[..., Any]], Group]:
    """As `click.group`."""
    return click.group(name, cls=Group, **more)
