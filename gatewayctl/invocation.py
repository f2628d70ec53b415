"""The parts that all commands share: the options `--context`, `--all` and `-o`, and how a command reaches its
gateways.

`reads` makes a command that can ask several gateways side by side, `acts` one that changes a single gateway.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial, wraps
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from gatewayctl import terminal
from gatewayctl.client.contexts import Context, ContextsFile
from gatewayctl.client.errors import ClientError, NoResponse
from gatewayctl.client.gateway import Record, RemoteGateway, Renewal, renewal
from gatewayctl.command import SHARED, CliCommand
from gatewayctl.failures import CommandFailure, ExitStatus, status_of
from gatewayctl.results import (
    TABLE,
    Format,
    FormatType,
    Of,
    Report,
    Result,
    lines_above,
    picture,
    redraw,
    show,
    show_all,
)
from gatewayctl.terminal import ask, complain, has_terminal, login_of
from gatewayctl.texts import moment

Function = Callable[..., Result | None]

#: Gateways that are asked at the same time.
_AT_ONCE = 16
#: Seconds between two pictures of a table that is shown again and again.
_EVERY = 2


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """The option of the innermost command outdoes that of `gatewayctl`."""
    if value and param.name:
        ctx.meta[f"{SHARED}{param.name}"] = value


def _contexts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    try:
        known = ContextsFile(os.environ).read().known
    except ClientError:
        # Its text would stand in the line that the user types.
        return []
    return [
        CompletionItem(name, help=context.url)
        for name, context in known.items()
        if name.startswith(incomplete)
    ]


class ContextType(click.ParamType[str]):
    """The name of a context."""

    name = "context"
    shell_complete = staticmethod(_contexts)


def _option(*names: str, **more: Any) -> click.Option:
    return click.Option(names, expose_value=False, callback=_keep, **more)


def context_option() -> click.Option:
    return _option("--context", metavar="NAME", type=ContextType(), help="The gateway, by its context.")


def all_option() -> click.Option:
    return _option("--all", is_flag=True, help="Asks the gateways of all contexts, side by side.")


def output_option() -> click.Option:
    return _option(
        "-o", "--output", metavar="FORMAT", type=FormatType(),
        help="table, wide, json, csv or jsonpath=EXPRESSION.",
    )  # fmt: skip


def columns_option() -> click.Option:
    return _option(
        "--columns", metavar="NAME,...", type=ColumnsType(), help="The columns of the table, in this order."
    )


class ColumnsType(click.ParamType[tuple[str, ...]]):
    """Names of columns, separated by commas."""

    name = "columns"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        names = tuple(each.strip() for each in value.split(","))
        if not all(names):
            self.fail("must be names of columns, separated by commas", param, ctx)
        return names


def chosen_format(ctx: click.Context) -> Format:
    """Raises click.UsageError for columns of a format that has none."""
    found: Format = ctx.meta.get(f"{SHARED}output") or Format()
    columns = ctx.meta.get(f"{SHARED}columns", ())
    if columns and (found.name != TABLE or found.is_wide):
        raise click.UsageError("--columns chooses those of a table: -o with another format is not possible.")
    return replace(found, columns=columns)


def chosen_context(ctx: click.Context) -> Context:
    """Raises ClientError."""
    return ContextsFile(os.environ).read().chosen(ctx.meta.get(f"{SHARED}context"), os.environ)


def chosen_contexts(ctx: click.Context) -> list[Context]:
    """Return all of them with `--all`. Raises ClientError."""
    if not ctx.meta.get(f"{SHARED}all"):
        return [chosen_context(ctx)]
    known = ContextsFile(os.environ).read().known
    if not known:
        raise CommandFailure(ExitStatus.USAGE, "there is no context yet: gatewayctl login makes one")
    return list(known.values())


def chosen_gateway(ctx: click.Context) -> RemoteGateway:
    """Raises ClientError."""
    return gateway_of(ctx, chosen_context(ctx), renewal(ContextsFile(os.environ), login_of))


def gateway_of(ctx: click.Context, context: Context, renew: Renewal | None = None) -> RemoteGateway:
    """Return a gateway, whose errors name the options of the command."""
    if not isinstance(ctx.command, CliCommand):
        return RemoteGateway(context, renew)
    return RemoteGateway(context, renew, explained=ctx.command.explained)


def reads(function: Function) -> Callable[..., None]:
    """Return a command that reads. The function gets a gateway and the options, and returns a result."""

    @wraps(function)
    @click.pass_context
    def command(ctx: click.Context, /, **arguments: Any) -> None:
        format = chosen_format(ctx)
        if not ctx.meta.get(f"{SHARED}all"):
            _show(function(chosen_gateway(ctx), **arguments), format)
        else:
            gateways = [gateway_of(ctx, each) for each in chosen_contexts(ctx)]
            _ask_all(gateways, partial(function, **arguments), format)

    return _with(command, function, (context_option(), all_option(), output_option(), columns_option()))


def refreshes(function: Function) -> Callable[..., None]:
    """As `reads`. On a terminal, a table is shown anew every few seconds until Ctrl-C."""

    @wraps(function)
    @click.pass_context
    def command(ctx: click.Context, /, **arguments: Any) -> None:
        format = chosen_format(ctx)
        if format.name != TABLE or not terminal.can_redraw():
            ctx.invoke(once, **arguments)
            return
        gateways = [chosen_gateway(ctx)]
        if ctx.meta.get(f"{SHARED}all"):
            gateways = [gateway_of(ctx, each) for each in chosen_contexts(ctx)]
        with suppress(KeyboardInterrupt):
            _refresh(gateways, partial(function, **arguments), format)

    once = reads(function)
    command.__click_params__ = once.__click_params__  # type: ignore[attr-defined]
    return command


def _refresh(
    gateways: Sequence[RemoteGateway], ask: Callable[[RemoteGateway], Result | None], format: Format
) -> NoReturn:
    """A gateway that does not respond is asked again. Raises ClientError after another error, or if
    none has responded yet."""
    has_shown = False
    while True:
        results, failures = _asked(gateways, ask)
        worst = max((failure for _, failure in failures), key=status_of, default=None)
        if worst and (not isinstance(worst, NoResponse) or not (has_shown or results)):
            raise worst
        has_shown = True
        shown = picture(results, format, terminal.width(), is_one=len(gateways) == 1)
        notes = [f"{name}: {each}" for name, failure in failures for each in failure.lines]
        first = f"{moment(int(time.time()))}, every {_EVERY} s; Ctrl-C ends"
        redraw(shown, first, notes)
        time.sleep(_EVERY)


def acts(function: Function) -> Callable[..., None]:
    """As `reads`, for a command that changes one gateway."""

    @wraps(function)
    @click.pass_context
    def command(ctx: click.Context, /, **arguments: Any) -> None:
        _show(function(chosen_gateway(ctx), **arguments), chosen_format(ctx))

    return _with(command, function, (context_option(), output_option()))


def _with(
    command: Callable[..., None], function: Function, options: Sequence[click.Option]
) -> Callable[..., None]:
    own = getattr(function, "__click_params__", [])
    # click reverses them.
    command.__click_params__ = [*reversed(options), *own]  # type: ignore[attr-defined]
    return command


def _show(result: Result | None, format: Format) -> None:
    if result is not None:
        show(result, format)
        if result.status is not ExitStatus.DONE:
            raise click.exceptions.Exit(result.status)


def _ask_all(
    gateways: Sequence[RemoteGateway], ask: Callable[[RemoteGateway], Result | None], format: Format
) -> None:
    """Show what those reply that can; the exit status is the highest of all."""
    results, failures = _asked(gateways, ask)
    for name, failure in failures:
        complain(failure.lines, name)
    show_all(results, format)
    statuses = [*(of.result.status for of in results), *(status_of(failure) for _, failure in failures)]
    if any(statuses):
        raise click.exceptions.Exit(max(statuses))


def _asked(
    gateways: Sequence[RemoteGateway], ask: Callable[[RemoteGateway], Result | None]
) -> tuple[list[Of], list[tuple[str, ClientError]]]:
    """Return the results of all gateways, and their failures by context."""
    results, failures = [], []
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        # A single one may ask for a password, which only the main thread can.
        calls: list[Callable[[], Result | None]] = (
            [partial(ask, gateways[0])]
            if len(gateways) == 1
            else [pool.submit(ask, each).result for each in gateways]
        )
        for gateway, call in zip(gateways, calls, strict=True):
            try:
                if (result := call()) is not None:
                    results.append(Of(gateway.context.name, result))
            except ClientError as failure:
                failures.append((gateway.context.name, failure))
    return results, failures


yes_option = click.option("--yes", is_flag=True, help="Does not ask for confirmation.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Only shows what would happen.")


def filter_of(ctx: click.Context, param: click.Parameter, given: Sequence[str]) -> Record:
    """Return the value of an option FIELD=VALUE, which may be repeated."""
    query = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter("must be FIELD=VALUE", ctx, param)
        query[name] = value
    return query


def confirm(
    question: str, *, yes: bool, otherwise: str, about: Report | None = None, always: bool = False
) -> None:
    """Ask at the terminal, below a report; with `always`, the report is shown without a question, too. Raises
    CommandFailure with `otherwise` if the user does not agree."""
    for each in lines_above(about) if about and (always or not yes) else ():
        terminal.tell(each)
    if yes:
        return
    if not (sys.stdin.isatty() and has_terminal()):
        raise CommandFailure(ExitStatus.USAGE, "no terminal for the confirmation: use --yes")
    try:
        agreed = ask(f"{question} [y/N] ").lower() in {"y", "yes"}
    except (click.Abort, KeyboardInterrupt):
        terminal.tell("")
        agreed = False
    if not agreed:
        raise CommandFailure(ExitStatus.REFUSED, otherwise)
