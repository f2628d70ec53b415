"""Commands and groups of commands as all of `gatewayctl` are: they refuse options that do not go together,
name the option of a field of the API, and show their help without cuts.

An option that the chosen way of a command does not use is refused: ignored, it would mislead. The options
of a command that is not in `USAGES` go together.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from gateway_contract import program


class Usage(NamedTuple):
    """A way to use a command, chosen by an option or argument `by`, or by none. `options` go with it, and at
    least one of those in `needs`. Spaces are between names."""

    by: str | None
    options: str
    needs: str = ""

    @property
    def names(self) -> Collection[str | None]:
        return {self.by, *self.options.split(), *self.needs.split()}


_LIST = "--filter --sort --limit"

#: By the words after `gatewayctl`. A command without a way that nothing chooses needs one of the others.
USAGES: Mapping[str, tuple[Usage, ...]] = {
    "subscribers rate": (
        Usage("TARGET", "--for --until --dry-run", needs="--down --up"),
        Usage("--where", "--for --until --dry-run --per-second --yes", needs="--down --up"),
        Usage("--file", "--for --until --dry-run --yes --skip-bad --offline-ok"),
    ),
    "subscribers disconnect": (
        Usage("TARGET", "--dry-run --yes"),
        Usage("--interface", "--dry-run --yes"),
        Usage("--where", "--dry-run --yes --per-second"),
    ),
    "config show": (Usage(None, "PATH"), Usage("--candidate", "PATH"), Usage("--revision", "PATH")),
    "config compare": (Usage(None, "FROM TO"), Usage("--revision", "")),
    "qos": (Usage(None, _LIST), Usage("--profiles", "")),
    "cgnat": (Usage(None, _LIST), Usage("--stats", "")),
    "demux": (Usage(None, _LIST), Usage("--config", "")),
}

#: Pairs that exclude each other, of a command or, with '', of all.
EXCLUSIVE_OPTIONS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "": (("--context", "--all"),),
    "subscribers rate": (("--for", "--until"),),
    # The id is of an event of one gateway.
    "events": (("--after", "--all"),),
}


def broken_rules(path: str, given: Collection[str]) -> Iterator[str]:
    """The rules that the given options and arguments of a command break, each with the names of both."""
    for one, other in (*EXCLUSIVE_OPTIONS[""], *EXCLUSIVE_OPTIONS.get(path, ())):
        if one in given and other in given:
            yield f"{one} and {other} exclude each other."
    usages = USAGES.get(path)
    if usages is None:
        return
    chosen = [usage for usage in usages if usage.by in given]
    if len(chosen) > 1:
        yield f"{' and '.join(str(usage.by) for usage in chosen)} exclude each other."
    elif usage := next(iter([*chosen, *(usage for usage in usages if usage.by is None)]), None):
        yield from _check_usage(usage, usages, given)
    else:
        yield f"One of {', '.join(str(usage.by) for usage in usages)} is required."


def _check_usage(usage: Usage, usages: Collection[Usage], given: Collection[str]) -> Iterator[str]:
    for name in sorted(given):
        users = [str(each.by) for each in usages if name in each.names and each.by]
        if name in usage.names or not any(name in each.names for each in usages):
            continue
        yield f"{name} does not go with {usage.by}" + (
            f": it is for {' and '.join(users)}." if users else "."
        )
    if usage.needs and not any(name in given for name in usage.needs.split()):
        yield f"{usage.by} requires {usage.needs.replace(' ', ' or ')}."


#: The rule of the API that a field breaks which it does not have.
_UNKNOWN = "is not a known field"
#: For the options that a command shares with `gatewayctl`: it may have got them before the command.
SHARED = "gatewayctl."


def label(parameter: click.Parameter) -> str:
    """Return the name of an option or argument, as users know it: `--at`, `TARGET`."""
    if isinstance(parameter, click.Option):
        return max(parameter.opts, key=len)
    return parameter.human_readable_name.strip("[].")


class CliCommand(click.Command):
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
        """Return a problem of a request as a line: the option and the rule, and the known fields for an
        unknown one."""
        name = self.spelled(path)
        for each in self.params:
            fields = getattr(each.type, "fields", ())
            if fields and rule == _UNKNOWN and name.partition(" ")[0] == label(each):
                return f"{name}: {rule}; known fields: {', '.join(fields)}"
        return f"{name}: {rule}"

    def spelled(self, path: str) -> str:
        """Return the option or argument that sets a field of a request: `--at` for `at`, `--where color` for
        `filter.color`. Other paths, such as those of the configuration, stay as they are."""
        field, _, rest = path.partition(".")
        for each in self.params:
            if each.name == field:
                return label(each) if not rest or rest.isdecimal() else f"{label(each)} {rest}"
        filters = [each for each in self.params if each.name == "filters"]
        return f"{label(filters[0])} {path}" if filters else path


class GatewayGroup(program.Group):
    """A group of such commands."""

    command_class = CliCommand


def _is_given(ctx: click.Context, parameter: click.Parameter) -> bool:
    name = parameter.name or ""
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE and ctx.params.get(name, True) != ()


def command(name: str | None = None, **more: Any) -> Callable[[Callable[..., Any]], CliCommand]:
    """As `click.command`."""
    return click.command(name, cls=CliCommand, **more)


def group(name: str | None = None, **more: Any) -> Callable[[Callable[..., Any]], GatewayGroup]:
    """As `click.group`."""
    return click.group(name, cls=GatewayGroup, **more)
