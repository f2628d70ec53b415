"""Commands for login and logout, and for the contexts with their tokens."""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import click

from gateway_client.contexts import DEFAULT_URL, Context, Contexts, ContextsFile
from gateway_client.errors import ExitStatus, LoginRequired
from gateway_client.gateway import log_in
from gatewayctl import cli, terminal
from gatewayctl.errors import CommandError
from gatewayctl.results import HIGH, IDENTITY, LOW, Column, ResultList, show
from gatewayctl.terminal import ask_password, ask_username
from gatewayctl.texts import NOTHING, escape

_CONTEXT_COLUMNS = (
    Column("current", value=lambda record: "*" if record["current"] else NOTHING),
    Column("name", IDENTITY), Column("url", IDENTITY), Column("username"), Column("labels"),
    Column("ca", LOW, "CA"),
    Column("logged_in", HIGH, value=lambda record: "yes" if record["logged_in"] else "no"),
    Column("reason", LOW, can_wrap=True),
)  # fmt: skip


@cli.command()
@cli.context_option
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
@click.option(
    "--label", "labels", metavar="LABEL", type=cli.LabelType(), multiple=True,
    help="Add this label to the context; repeatable. --on LABEL selects all contexts with a label.",
)  # fmt: skip
@click.option("--if-needed", is_flag=True, help="Do not log in while the token is valid.")
@click.pass_context
def login(
    ctx: click.Context,
    url: str | None,
    ca: str | None,
    username: str | None,
    password: str | None,
    labels: Sequence[str],
    if_needed: bool,
) -> None:
    """Log in to a gateway, and store the token in the context of the gateway.

    The first login at a gateway creates a context, named by --context, by default HOST:PORT. The context
    becomes the current context, which the other commands use. Only the owner can read the file of the
    contexts.
    """
    file = ContextsFile(os.environ)
    context = _find_context(ctx, file, url, ca)
    gateway = cli.create_gateway(ctx, context)
    if if_needed and context.token:
        with suppress(LoginRequired):
            gateway.get("/subscribers/summary")
            terminal.show(escape(f"still logged in to {context.url}"))
            if labels:
                _change_labels(file, [context.name], labels)
            return
    name = username or context.username or ask_username(context)
    context = log_in(gateway, file, name, ask_password(name, password), make_current=True)
    terminal.show(escape(f"logged in to {context.url} as {name}, context {context.name}"))
    if labels:
        _change_labels(file, [context.name], labels)


def _change_labels(
    file: ContextsFile, names: Sequence[str], add: Sequence[str] = (), remove: Sequence[str] = ()
) -> None:
    """Change the labels of contexts, all or none, and print the labels that each context then has. Raises
    BadContext if a name is unknown."""
    labels_by_name = {}

    def change(contexts: Contexts) -> Contexts:
        for name in names:
            contexts = contexts.change_labels(name, add=add, remove=remove)
            labels_by_name[name] = contexts.by_name[name].labels
        return contexts

    file.edit(change)
    for name, labels in labels_by_name.items():
        terminal.show(escape(f"the labels of the context {name}: {', '.join(labels) or NOTHING}"))


def _find_context(ctx: click.Context, file: ContextsFile, url: str | None, ca: str | None) -> Context:
    """Return the context to log in to, chosen by the option --context, the URL and the environment. The path
    of the CA certificate in the context is absolute."""
    name = cli.get_shared_option(ctx, "context")
    contexts = file.read()
    if url is None and (name is None or name in contexts.by_name):
        context = contexts.choose(name, os.environ)
    else:
        url = url or os.environ.get("GATEWAY_URL") or DEFAULT_URL
        context = contexts.find(url, os.environ.get("GATEWAY_CA"), name)
    path = ca or context.ca
    return replace(context, ca=str(Path(path).absolute()) if path else None)


@cli.command()
@cli.context_option
@click.option("--everywhere", is_flag=True, help="End all tokens of the user.")
@click.pass_context
def logout(ctx: click.Context, everywhere: bool) -> None:
    """Revoke the token, and remove it from the context."""
    context = cli.get_context(ctx)
    if context.token is None:
        raise CommandError(ExitStatus.LOGIN_REQUIRED, f"not logged in to {context.url}")
    gateway = cli.create_gateway(ctx, context)
    # The token may be invalid already.
    with suppress(LoginRequired):
        if everywhere:
            gateway.send("POST", "/auth/logout-everywhere", {})
        else:
            gateway.send("POST", "/auth/logout")
    ContextsFile(os.environ).edit(lambda contexts: contexts.add(replace(context, token=None)))
    terminal.show(escape(f"logged out of {context.url}"))


@cli.group()
def contexts() -> None:
    """Manage the contexts: the gateways that you have logged in to.

    The file is gatewayctl/contexts.json, in XDG_CONFIG_HOME or ~/.config.
    """


@contexts.command("list")
@cli.output_option
@cli.columns_option
@click.pass_context
def list_(ctx: click.Context) -> None:
    """List the contexts, and why a token is invalid. Tokens are not shown."""
    contexts = ContextsFile(os.environ).read()
    records = []
    for context in contexts.by_name.values():
        problem = context.describe_token_problem(time.time())
        records.append(
            {
                "current": context.name == contexts.current,
                **{name: getattr(context, name) for name in ("name", "url", "username", "ca")},
                "labels": list(context.labels),
                "logged_in": problem is None,
                "reason": problem,
            }
        )
    show(ResultList(records, _CONTEXT_COLUMNS), cli.get_format(ctx))


@contexts.command()
@cli.context_argument
def use(name: str) -> None:
    """Make NAME the current context."""
    ContextsFile(os.environ).edit(lambda contexts: contexts.add(contexts.get(name), make_current=True))
    terminal.show(escape(f"the current context is {name}"))


@contexts.command()
@cli.contexts_argument
@click.option(
    "--add", metavar="LABEL", type=cli.LabelType(), multiple=True, help="Add this label; repeatable."
)
@click.option(
    "--remove", metavar="LABEL", type=cli.LabelType(), multiple=True, help="Remove this label; repeatable."
)
def label(names: Sequence[str], add: Sequence[str], remove: Sequence[str]) -> None:
    """Add or remove labels of contexts. --on LABEL selects the gateways of all contexts with a label."""
    _change_labels(ContextsFile(os.environ), names, add, remove)


@contexts.command()
@cli.context_argument
def remove(name: str) -> None:
    """Remove the context NAME with its token. The token is not revoked: log out first."""
    ContextsFile(os.environ).edit(lambda contexts: contexts.remove(name))
    terminal.show(escape(f"the context {name} is removed"))
