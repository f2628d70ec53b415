"""Logins, and the contexts that keep them."""

import os
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import click

from gatewayctl import terminal
from gatewayctl.client.contexts import DEFAULT_URL, Context, ContextsFile
from gatewayctl.client.errors import LoginRequired
from gatewayctl.client.gateway import RemoteGateway, log_in
from gatewayctl.command import SHARED, command, group
from gatewayctl.failures import CommandFailure, ExitStatus
from gatewayctl.invocation import (
    ContextType,
    chosen_context,
    chosen_format,
    columns_option,
    context_option,
    gateway_of,
    output_option,
)
from gatewayctl.results import Importance, ResultList, ShownColumn, show
from gatewayctl.terminal import password_for, username_for
from gatewayctl.texts import NOTHING, line

_COLUMNS = (
    ShownColumn("current", value=lambda current: "*" if current else NOTHING),
    ShownColumn("name", importance=Importance.IDENTITY),
    ShownColumn("url", importance=Importance.IDENTITY),
    ShownColumn("username"),
    ShownColumn("ca", "CA", importance=Importance.LOW),
    ShownColumn(
        "logged_in",
        value=lambda logged_in: "yes" if logged_in else "no",
        importance=Importance.HIGH,
    ),
    ShownColumn("reason", importance=Importance.LOW, wraps=True),
)


@command(params=[context_option()])
@click.option("--url", metavar="URL", help="The gateway; GATEWAY_URL by default.")
@click.option(
    "--ca", metavar="FILE", help="The CA certificate for its certificate, in PEM; GATEWAY_CA by default."
)
@click.option(
    "--user", "username", metavar="NAME", envvar="GATEWAY_USER", help="The user; GATEWAY_USER by default."
)
@click.option(
    "--password-file", "password", metavar="FILE", envvar="GATEWAY_PASSWORD_FILE",
    help="The password is its first line; - is standard input.",
)  # fmt: skip
@click.option("--if-needed", is_flag=True, help="Does nothing while the token is valid.")
@click.pass_context
def login(
    ctx: click.Context,
    url: str | None,
    ca: str | None,
    username: str | None,
    password: str | None,
    if_needed: bool,
) -> None:
    """Logs in to a gateway, and keeps the token in its context.

    The first login at a gateway makes the context: --context names it, or else the host and port of the URL.
    It becomes the current context, which the other commands use. The file of the contexts belongs to its
    owner alone.
    """
    file = ContextsFile(os.environ)
    context = _context(ctx, file, url, ca)
    gateway = gateway_of(ctx, context)
    if if_needed and context.token and _is_valid(gateway):
        terminal.show(line(f"still logged in to {context.url}"))
        return
    name = username_for(context, username or context.username)
    made = log_in(gateway, file, name, password_for(name, password), current=True)
    terminal.show(line(f"logged in to {made.url} as {name}, context {made.name}"))


def _context(ctx: click.Context, file: ContextsFile, url: str | None, ca: str | None) -> Context:
    """The context to log in to, with an absolute path to its CA certificate."""
    name = ctx.meta.get(f"{SHARED}context")
    contexts = file.read()
    if url is None and (name is None or name in contexts.known):
        context = contexts.chosen(name, os.environ)
    else:
        wanted = url or os.environ.get("GATEWAY_URL") or DEFAULT_URL
        context = contexts.at(wanted, os.environ.get("GATEWAY_CA"), name)
    chosen = ca or context.ca
    return replace(context, ca=str(Path(chosen).absolute()) if chosen else None)


def _is_valid(gateway: RemoteGateway) -> bool:
    """Raises ClientError, but not for a token that is not valid."""
    try:
        gateway.get("/subscribers/summary")
    except LoginRequired:
        return False
    return True


@command(params=[context_option()])
@click.option("--everywhere", is_flag=True, help="Ends all tokens of the user.")
@click.pass_context
def logout(ctx: click.Context, everywhere: bool) -> None:
    """Revokes the token, and removes it from the context."""
    context = chosen_context(ctx)
    if context.token is None:
        raise CommandFailure(ExitStatus.SIGN_IN, f"not logged in to {context.url}")
    gateway = gateway_of(ctx, context)
    # Without a login, the token is no longer valid.
    with suppress(LoginRequired):
        if everywhere:
            gateway.send("POST", "/auth/logout-everywhere", {})
        else:
            gateway.send("POST", "/auth/logout")
    ContextsFile(os.environ).keep(replace(context, token=None))
    terminal.show(line(f"logged out of {context.url}"))


@group()
def contexts() -> None:
    """Manages the contexts: the gateways that you know.

    They are in gatewayctl/contexts.json, in XDG_CONFIG_HOME or ~/.config.
    """


@contexts.command("list", params=[output_option(), columns_option()])
@click.pass_context
def list_(ctx: click.Context) -> None:
    """Lists the contexts, and why a token is not valid. Tokens are not shown."""
    held = ContextsFile(os.environ).read()
    problems = {name: context.token_problem(time.time()) for name, context in held.known.items()}
    records = [
        {
            "current": context.name == held.current,
            "name": context.name,
            "url": context.url,
            "username": context.username,
            "ca": context.ca,
            "logged_in": problems[context.name] is None,
            "reason": problems[context.name],
        }
        for context in held.known.values()
    ]
    show(ResultList(records, _COLUMNS), chosen_format(ctx))


@contexts.command()
@click.argument("name", type=ContextType())
def use(name: str) -> None:
    """Makes NAME the current context."""
    with ContextsFile(os.environ).editing() as edited:
        edited.contexts = edited.contexts.with_one(edited.contexts.named(name), current=True)
    terminal.show(line(f"the current context is {name}"))


@contexts.command()
@click.argument("name", type=ContextType())
def remove(name: str) -> None:
    """Removes the context NAME with its token. It does not revoke the token: log out first."""
    with ContextsFile(os.environ).editing() as edited:
        edited.contexts = edited.contexts.without(name)
    terminal.show(line(f"the context {name} is removed"))
