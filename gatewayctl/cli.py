"""Base of the commands of `gatewayctl`: shared options, rules about combinations of options, and the choice
of the gateways.

A command refuses options that exclude each other, because an option that is silently ignored would mislead. A
command that is not in `USAGES` accepts all combinations of its options.
"""

import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial, wraps
from typing import Any, NamedTuple, TypeVar, cast

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from gateway_client.contexts import Context, ContextsFile, is_label
from gateway_client.errors import ClientError, ExitStatus, NoResponse, NoSuchRecord
from gateway_client.gateway import Record, RemoteGateway, Renewal, log_in
from gateway_contract import program
from gatewayctl import terminal
from gatewayctl.errors import CommandError, NothingFound, get_exit_status_of_many
from gatewayctl.results import (
    TABLE,
    ContextResult,
    Format,
    FormatType,
    Report,
    Result,
    arrange_table,
    combine_results,
    format_report,
    redraw,
    show,
    show_all,
)
from gatewayctl.terminal import ask, ask_login, has_terminal, print_errors
from gatewayctl.texts import format_time

#: A function or command that a decorator returns with another option.
Decorated = TypeVar("Decorated", bound=Callable[..., Any] | click.Command)


class Usage(NamedTuple):
    """Usage of a command, which applies if the option or argument `by` is given. A usage whose `by` is None
    applies when no other usage does. `options` are the allowed names, and `required` are names of which at
    least one must be given; both are separated by spaces."""

    by: str | None
    options: str
    required: str = ""

    @property
    def names(self) -> Collection[str | None]:
        return {self.by, *self.options.split(), *self.required.split()}


_LIST_OPTIONS = "--filter --sort --limit"

#: Usages by the words after `gatewayctl`. If no usage has None as `by`, the user must select a usage.
USAGES: Mapping[str, tuple[Usage, ...]] = {
    "subscribers rate": (
        Usage("TARGET", "--for --until --dry-run", required="--down --up"),
        Usage("--where", "--for --until --dry-run --per-second --yes", required="--down --up"),
        Usage("--file", "--for --until --dry-run --yes --skip-bad --offline-ok"),
    ),
    "subscribers disconnect": (
        Usage("TARGET", "--dry-run --yes"),
        Usage("--interface", "--dry-run --yes"),
        Usage("--where", "--dry-run --yes --per-second"),
    ),
    "contexts label": (Usage("NAME", "", required="--add --remove"),),
    "config show": (Usage(None, "PATH"), Usage("--candidate", "PATH"), Usage("--revision", "PATH")),
    "config compare": (Usage(None, "FROM TO"), Usage("--revision", "")),
    "rollout": (
        Usage("FILE", "--canary --wave --probe --confirm-within --state --dry-run --yes"),
        Usage("--resume", "--yes"),
    ),
    "qos": (Usage(None, _LIST_OPTIONS), Usage("--profiles", "")),
    "cgnat": (Usage(None, _LIST_OPTIONS), Usage("--stats", "")),
    "demux": (Usage(None, _LIST_OPTIONS), Usage("--config", "")),
}

#: Pairs of options that exclude each other, by command; the pairs of '' apply to all commands.
EXCLUSIVE_OPTIONS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "": (("--context", "--all"), ("--context", "--on"), ("--all", "--on")),
    "subscribers rate": (("--for", "--until"),),
    "rollout": (("--resume", "--all"), ("--resume", "--on")),
    # An event id belongs to one gateway.
    "events": (("--after", "--all"), ("--after", "--on")),
}


def find_broken_rules(path: str, names: Collection[str]) -> Iterator[str]:
    """Return a sentence for each broken rule about combinations of options and arguments. `path` is the words
    of the command after `gatewayctl`, and `names` are the options and arguments that the user has given."""
    for first, second in (*EXCLUSIVE_OPTIONS[""], *EXCLUSIVE_OPTIONS.get(path, ())):
        if first in names and second in names:
            yield f"{first} and {second} exclude each other."
    if "--deadline" in names and not any(name in names for name in _MANY_OPTIONS):
        yield f"--deadline requires {' or '.join(_MANY_OPTIONS)}."
    usages = USAGES.get(path)
    if usages is None:
        return
    selected_usages = [usage for usage in usages if usage.by in names]
    if len(selected_usages) > 1:
        yield f"{' and '.join(str(usage.by) for usage in selected_usages)} exclude each other."
    elif usage := next(iter([*selected_usages, *(usage for usage in usages if usage.by is None)]), None):
        yield from _check_usage(usage, usages, names)
    else:
        yield f"One of {', '.join(str(usage.by) for usage in usages)} is required."


def _check_usage(usage: Usage, usages: Collection[Usage], names: Collection[str]) -> Iterator[str]:
    for name in sorted(names):
        usage_names = [str(each.by) for each in usages if name in each.names and each.by]
        if name in usage.names or not any(name in each.names for each in usages):
            continue
        yield f"{name} does not go with {usage.by}" + (
            f": it is for {' and '.join(usage_names)}." if usage_names else "."
        )
    if usage.required and not any(name in names for name in usage.required.split()):
        yield f"{usage.by} requires {usage.required.replace(' ', ' or ')}."


#: Text of the API for a request with an unknown field.
_UNKNOWN_FIELD_RULE = "is not a known field"
#: Options that select several gateways.
_MANY_OPTIONS = ("--all", "--on")
#: Prefix of a shared option in the context: the option may stand before the command or after it.
_SHARED_PREFIX = "gatewayctl."


def get_label(parameter: click.Parameter) -> str:
    """Return the name of an option or argument as in help texts: `--at`, `TARGET`."""
    if isinstance(parameter, click.Option):
        return max(parameter.opts, key=len)
    return parameter.human_readable_name.strip("[].")


class CliCommand(click.Command):
    """Command of `gatewayctl`. The parameters of the command are named after the fields of the API."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Raises click.UsageError if the user has given options that exclude each other, or
        a shared option that the command does not have."""
        own = {get_label(each): each for each in self.params}
        root_parameters = ctx.find_root().command.params
        shared = {get_label(each) for each in root_parameters if f"{_SHARED_PREFIX}{each.name}" in ctx.meta}
        for name in sorted(shared - own.keys()):
            reason = ": it is for one gateway" if name in _MANY_OPTIONS and "--context" in own else ""
            raise click.UsageError(f"{name} does not go with {ctx.command_path}{reason}.", ctx)
        names = shared | {
            name
            for name, each in own.items()
            if ctx.get_parameter_source(str(each.name)) is ParameterSource.COMMANDLINE
            # click reports a repeatable argument as given on the command line even if it has no value.
            and ctx.params.get(str(each.name), True) != ()
        }
        for rule in find_broken_rules(ctx.command_path.removeprefix(f"{ctx.find_root().info_name} "), names):
            raise click.UsageError(rule, ctx)
        return super().invoke(ctx)

    def describe_problem(self, path: str, rule: str) -> str:
        """Return a line with the option or argument that sets the field at `path` of a request, and with the
        rule that the field breaks. For an unknown field, the line also lists the known fields."""
        name = self.name_option(path)
        for each in self.params:
            fields = getattr(each.type, "fields", ())
            if fields and rule == _UNKNOWN_FIELD_RULE and name.partition(" ")[0] == get_label(each):
                return f"{name}: {rule}; known fields: {', '.join(fields)}"
        return f"{name}: {rule}"

    def name_option(self, path: str) -> str:
        """Return the option or argument that sets the field at `path` of a request: `--at` for `at`, `--where
        color` for `filter.color`. If no option sets the field, return the path unchanged: for example, a path
        in the configuration."""
        field, _, rest = path.partition(".")
        for each in self.params:
            if each.name == field:
                return get_label(each) if not rest or rest.isdecimal() else f"{get_label(each)} {rest}"
        filters = [each for each in self.params if each.name == "filters"]
        return f"{get_label(filters[0])} {path}" if filters else path


class CliGroup(program.Group):
    """Group of commands of the class CliCommand."""

    command_class = CliCommand


def command(name: str | None = None, **attributes: Any) -> Callable[[Callable[..., Any]], CliCommand]:
    """Return a decorator that makes a function the callback of a CliCommand. `attributes` are arguments of
    CliCommand."""
    return click.command(name, cls=CliCommand, **attributes)


def group(name: str | None = None, **attributes: Any) -> Callable[[Callable[..., Any]], CliGroup]:
    """Return a decorator that makes a function the callback of a CliGroup. `attributes` are arguments of
    CliGroup."""
    return click.group(name, cls=CliGroup, **attributes)


def _complete_contexts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    try:
        contexts = ContextsFile(os.environ).read().by_name
    except ClientError:
        # An error message would appear in the line that the user types.
        return []
    return [
        CompletionItem(name, help=context.url)
        for name, context in contexts.items()
        if name.startswith(incomplete)
    ]


class LabelType(click.ParamType[str]):
    """Parameter type for a label. A shell completes the labels of the contexts."""

    name = "label"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not is_label(value):
            self.fail(f"{value!r} must be 1 to 64 letters, digits, - or _", param, ctx)
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            contexts = ContextsFile(os.environ).read()
        except ClientError:
            # An error message would appear in the line that the user types.
            return []
        return [
            CompletionItem(label, help=", ".join(each.name for each in contexts.find_by_label(label)))
            for label in contexts.list_labels()
            if label.startswith(incomplete)
        ]


def _store_shared_option(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    # The option of the innermost command is the last one, and overwrites the others.
    if value:
        ctx.meta[f"{_SHARED_PREFIX}{param.name}"] = value


def _store_columns(ctx: click.Context, param: click.Parameter, text: str | None) -> None:
    if text is not None:
        names = tuple(name.strip() for name in text.split(","))
        if not all(names):
            raise click.BadParameter("must be names of columns, separated by commas", ctx, param)
        _store_shared_option(ctx, param, names)


#: Default of --deadline.
_DEADLINE_SECONDS = 10


def _create_shared_option(*names: str, **attributes: Any) -> Callable[[Decorated], Decorated]:
    return click.option(*names, expose_value=False, callback=_store_shared_option, **attributes)


def get_shared_option(ctx: click.Context, name: str) -> Any:
    """Return the value of the shared option `name`, which may stand before or after the command; None if the
    option is not given."""
    return ctx.meta.get(f"{_SHARED_PREFIX}{name}")


context_option = _create_shared_option(
    "--context", metavar="NAME", shell_complete=_complete_contexts, help="The gateway, by its context."
)
all_option = _create_shared_option(
    "--all", is_flag=True, help="Ask the gateways of all contexts, side by side."
)
on_option = _create_shared_option(
    "--on", metavar="LABEL", type=LabelType(),
    help="Ask the gateways of the contexts with this label, side by side.",
)  # fmt: skip
deadline_option = _create_shared_option(
    "--deadline", metavar="SECONDS", type=click.IntRange(1, 3600),
    help="With --all or --on: give up on a gateway after this time, by default "
    f"{_DEADLINE_SECONDS} seconds.",
)  # fmt: skip
output_option = _create_shared_option(
    "-o", "--output", type=FormatType(),
    help="table, wide, json, csv or jsonpath=EXPRESSION.",
)  # fmt: skip
columns_option = click.option(
    "--columns", metavar="NAME,...", expose_value=False, callback=_store_columns,
    help="The columns of the table, in this order.",
)  # fmt: skip
context_argument = click.argument("name", shell_complete=_complete_contexts)
contexts_argument = click.argument(
    "names", metavar="NAME...", nargs=-1, required=True, shell_complete=_complete_contexts
)
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would happen.")


def create_limit_option(
    help: str = "The largest number of records.", **attributes: Any
) -> Callable[[Decorated], Decorated]:
    """Return a click option for the maximum number of records. `attributes` are arguments of
    `click.option`."""
    return click.option("--limit", metavar="N", type=click.IntRange(1), help=help, **attributes)


def parse_filters(ctx: click.Context, param: click.Parameter, conditions: Sequence[str]) -> Record:
    """Return a map from field to value for the conditions FIELD=VALUE of an option. click calls this function
    as the callback of the option."""
    query = {}
    for text in conditions:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter("must be FIELD=VALUE", ctx, param)
        query[name] = value
    return query


def get_format(ctx: click.Context) -> Format:
    """Return the output format that the user chose. Raises click.UsageError if the user chose columns with
    --columns, but a format without columns."""
    format: Format = get_shared_option(ctx, "output") or Format()
    columns = get_shared_option(ctx, "columns") or ()
    if columns and (format.name != TABLE or format.is_wide):
        raise click.UsageError("--columns chooses those of a table: -o with another format is not possible.")
    return replace(format, columns=columns)


def get_context(ctx: click.Context) -> Context:
    """Return the context that the user chose. Raises BadContext if the context is unknown, the URL in
    GATEWAY_URL is invalid, or the contexts cannot be read."""
    return ContextsFile(os.environ).read().choose(get_shared_option(ctx, "context"), os.environ)


def create_gateway(ctx: click.Context, context: Context, renew: Renewal | None = None) -> RemoteGateway:
    """Return a client of the gateway of a context. `renew` returns a new token when the token has expired.
    Error messages name the options of the command instead of the fields of the API."""
    command = cast(CliCommand, ctx.command)
    return RemoteGateway(context, renew, describe_problem=command.describe_problem)


def get_gateway(ctx: click.Context) -> RemoteGateway:
    """Return a client of the gateway that the user chose. Raises BadContext if the context is unknown or
    cannot be read."""
    return create_gateway(ctx, get_context(ctx), _renew_token)


def _renew_token(gateway: RemoteGateway) -> str | None:
    """Log in again, and return the new token. Return None if there is neither a password file nor a terminal
    to ask for the password."""
    login = ask_login(gateway.context)
    return log_in(RemoteGateway(gateway.context), ContextsFile(os.environ), *login).token if login else None


def has_many_gateways(ctx: click.Context) -> bool:
    """Return True if the user selected several gateways, with `--all` or `--on`. A label may be the label of
    only one context."""
    return any(get_shared_option(ctx, name.removeprefix("--")) for name in _MANY_OPTIONS)


def get_deadline(ctx: click.Context) -> float:
    """Return the time that each of several gateways has for all requests of the command, in seconds."""
    return float(get_shared_option(ctx, "deadline") or _DEADLINE_SECONDS)


def get_gateways(ctx: click.Context) -> list[RemoteGateway]:
    """Return a client for each gateway of the command: with `--all`, the gateways of all contexts; with
    `--on`, the gateways of the contexts with the label; otherwise the gateway that the user chose. With
    `--all` and `--on`, the clients do not log in again: the password of one gateway would be sent to the
    others. Raises ClientError if the contexts cannot be read, the chosen context or label is unknown, or
    there is no context yet."""
    if not has_many_gateways(ctx):
        return [get_gateway(ctx)]
    contexts = ContextsFile(os.environ).read()
    if not contexts.by_name:
        raise CommandError(ExitStatus.USAGE, "there is no context yet: gatewayctl login makes one")
    label = get_shared_option(ctx, "on")
    chosen = contexts.find_by_label(label) if label else contexts.by_name.values()
    return [create_gateway(ctx, context) for context in chosen]


Function = Callable[..., Result | None]
#: Function of a command, with its options filled in.
_ReadGateway = Callable[[RemoteGateway], Result | None]
#: Pair of context name and error.
_ContextError = tuple[str, ClientError]
#: Value that a read of a gateway returns.
Value = TypeVar("Value")

_REFRESH_SECONDS = 2


def read_side_by_side(
    gateways: Sequence[RemoteGateway], read: Callable[[RemoteGateway], Value], deadline_seconds: float
) -> list[Value | ClientError]:
    """Call `read` with each gateway, each in a thread of its own, and return the values in the order of the
    gateways. The value of a gateway is a ClientError if `read` raised this error, or if `read` has not
    returned after `deadline_seconds`. The exit of the process does not wait for threads that still read."""
    outcomes: queue.SimpleQueue[tuple[int, Value | Exception]] = queue.SimpleQueue()

    def run(index: int, gateway: RemoteGateway) -> None:
        try:
            outcomes.put((index, read(gateway)))
        except Exception as error:  # noqa: BLE001 - raised in the main thread
            outcomes.put((index, error))

    deadline = time.monotonic() + deadline_seconds
    # The threads of a ThreadPoolExecutor would delay the exit.
    for index, gateway in enumerate(gateways):
        threading.Thread(target=run, args=[index, gateway], daemon=True).start()
    values: list[Value | ClientError] = [
        NoResponse(
            f"no complete response from a gateway at {each.context.url} within {deadline_seconds:g} s",
            "--deadline SECONDS allows more time",
        )
        for each in gateways
    ]
    with suppress(queue.Empty):
        for _ in gateways:
            index, outcome = outcomes.get(timeout=max(0.0, deadline - time.monotonic()))
            if isinstance(outcome, Exception) and not isinstance(outcome, ClientError):
                raise outcome
            values[index] = outcome
    return values


def read_command(function: Function, *, refresh: bool = False) -> Callable[..., None]:
    """Return a callback for a command that reads from one gateway, or with --all or --on from several. For
    each gateway, the callback calls `function` with the gateway and the options of the command, and shows the
    result. With `refresh`, a table on a terminal is refreshed every few seconds until Ctrl-C."""

    @context_option
    @all_option
    @on_option
    @deadline_option
    @output_option
    @columns_option
    @click.pass_context
    @wraps(function)
    def run(ctx: click.Context, /, **options: Any) -> None:
        format, gateways = get_format(ctx), get_gateways(ctx)
        read = partial(function, **options)
        if refresh and format.name == TABLE and terminal.can_redraw():
            with suppress(KeyboardInterrupt):
                _refresh(ctx, gateways, read, format)
        elif has_many_gateways(ctx):
            _show_each(*_read_each(ctx, gateways, read), format)
        else:
            _show(read(gateways[0]), format)

    return run


def change_command(function: Function) -> Callable[..., None]:
    """Return a callback for a command that changes one gateway. The callback calls `function` with the
    gateway and the options of the command, and shows the result."""

    @context_option
    @output_option
    @click.pass_context
    @wraps(function)
    def run(ctx: click.Context, /, **options: Any) -> None:
        _show(function(get_gateway(ctx), **options), get_format(ctx))

    return run


def _show(result: Result | None, format: Format) -> None:
    if result is not None:
        show(result, format)
        if result.status is not ExitStatus.SUCCESS:
            raise click.exceptions.Exit(result.status)


def _read_each(
    ctx: click.Context, gateways: Sequence[RemoteGateway], read: _ReadGateway
) -> tuple[list[ContextResult], list[_ContextError]]:
    """Return the results of the gateways that respond, and the errors of the other gateways. Raises
    ClientError if the user chose a single gateway, and this gateway refuses the request."""
    values: list[Result | ClientError | None]
    if has_many_gateways(ctx):
        values = read_side_by_side(gateways, read, get_deadline(ctx))
    else:
        # A single gateway may ask for a password, which only the main thread can.
        try:
            values = [read(gateways[0])]
        except NoResponse as error:
            values = [error]
    results, errors = [], []
    for gateway, value in zip(gateways, values, strict=True):
        if isinstance(value, ClientError):
            errors.append((gateway.context.name, value))
        elif value is not None:
            results.append(ContextResult(gateway.context.name, value))
    return results, errors


def _show_each(results: Sequence[ContextResult], errors: Sequence[_ContextError], format: Format) -> None:
    """Show the results and errors of several gateways. A gateway without a match is mentioned only if no
    gateway has a match. The exit status of the command counts the gateways that failed."""
    misses = [each for each in errors if isinstance(each[1], NothingFound | NoSuchRecord)]
    failures = [each for each in errors if each not in misses]
    for name, error in failures:
        print_errors(error.lines, name)
    if misses and not results:
        print_errors(dict.fromkeys(error.lines[0] for _, error in misses))
        for name, error in misses:
            print_errors(error.lines[1:], name)
    show_all(results, format)
    failed_count = len(failures) + sum(each.result.status is not ExitStatus.SUCCESS for each in results)
    if failed_count:
        raise click.exceptions.Exit(get_exit_status_of_many(failed_count))
    if misses and not results:
        raise click.exceptions.Exit(ExitStatus.REFUSED)


def _refresh(
    ctx: click.Context, gateways: Sequence[RemoteGateway], read: _ReadGateway, format: Format
) -> None:
    """Show the results again and again. A gateway that fails is asked again, and its last error is shown
    below the table. Raises ClientError if a single gateway refuses the request, or has not responded yet. Of
    several gateways, the errors end the command only if no gateway has responded yet."""
    has_results = False
    while True:
        results, errors = _read_each(ctx, gateways, read)
        has_results = has_results or bool(results)
        if not has_results and not has_many_gateways(ctx):
            raise errors[0][1]
        if not has_results:
            return _show_each(results, errors, format)
        table = arrange_table(
            combine_results(results, has_context_column=has_many_gateways(ctx)), format, terminal.get_width()
        )
        notes = [f"{name}: {line}" for name, error in errors for line in error.lines]
        redraw(table, f"{format_time(int(time.time()))}, every {_REFRESH_SECONDS} s; Ctrl-C ends", notes)
        time.sleep(_REFRESH_SECONDS)


def confirm(
    question: str, *, yes: bool, refusal: str, report: Report | None = None, always_report: bool = False
) -> None:
    """Show a report about a change, and ask at the terminal whether to continue. With `yes`, ask no question,
    and show the report only if `always_report` is set. Raises CommandError with the text `refusal` if the
    user does not agree, and a CommandError that suggests --yes if there is no terminal."""
    for each in format_report(report) if report and (always_report or not yes) else ():
        terminal.tell(each)
    if yes:
        return
    if not (sys.stdin.isatty() and has_terminal()):
        raise CommandError(ExitStatus.USAGE, "no terminal for the confirmation: use --yes")
    try:
        has_agreed = ask(f"{question} [y/N] ").lower() in {"y", "yes"}
    except (click.Abort, KeyboardInterrupt):
        terminal.tell("")
        has_agreed = False
    if not has_agreed:
        raise CommandError(ExitStatus.REFUSED, refusal)
