"""Commands that change the configuration of many gateways in waves, and that compare it with a file.

Functions import the rollout and the definition of the configuration, because these imports take a quarter of
the time of `gatewayctl --help`, which imports this module.
"""

from __future__ import annotations

import os
import secrets
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gateway_client.contexts import Context, ContextsFile
from gateway_client.errors import ExitStatus
from gateway_client.gateway import Record, RemoteGateway
from gateway_contract.base.logs import MASK
from gateway_contract.base.texts import parse_path
from gateway_contract.core.configuration import MAX_COMMENT_LENGTH, MAX_CONFIRM_SECONDS
from gatewayctl import cli, terminal
from gatewayctl.commands.configuration import (
    CONFIGURATION_PATH,
    describe_effect,
    list_values,
    parse_configuration,
)
from gatewayctl.errors import CommandError, get_exit_status_of_many
from gatewayctl.results import CONTEXT, IDENTITY, Column, Report, ResultList, show
from gatewayctl.terminal import print_errors, read_text
from gatewayctl.times import DurationType

if TYPE_CHECKING:
    from gatewayctl.merge_patch import Change
    from gatewayctl.rollout import Member, RolloutState

_PLAN_COLUMNS = (
    Column(CONTEXT, IDENTITY), Column("wave", IDENTITY), Column("effect", IDENTITY, can_wrap=True),
)  # fmt: skip
_RESULT_COLUMNS = (
    Column(CONTEXT, IDENTITY), Column("wave", IDENTITY), Column("result", IDENTITY),
    Column("problem", IDENTITY, can_wrap=True),
)  # fmt: skip
_DRIFT_COLUMNS = tuple(Column(name, IDENTITY) for name in ("path", "expected", "actual", "result"))
#: All gateways of a wave take their steps at the same time, each in a thread.
_MAX_WAVE_GATEWAYS = 100
_DIFFERS, _NOT_COMPARED = "differs", "not compared"


@cli.command()
@click.argument("file", required=False)
@click.option(
    "--canary", metavar="N", type=click.IntRange(0, _MAX_WAVE_GATEWAYS), default=1, show_default=True,
    help="The number of gateways in a first wave of their own.",
)  # fmt: skip
@click.option(
    "--wave", metavar="N", type=click.IntRange(1, _MAX_WAVE_GATEWAYS), default=10, show_default=True,
    help="The number of gateways in each further wave.",
)  # fmt: skip
@click.option(
    "--probe", metavar="COMMAND",
    help="Also run this shell command for each gateway after its commit; the status 0 means that the gateway "
    "is well. GATEWAY_NAME, GATEWAY_URL and GATEWAY_CA describe the gateway.",
)  # fmt: skip
@click.option(
    "--confirm-within", "confirm_seconds", type=DurationType(MAX_CONFIRM_SECONDS), default="120s",
    show_default=True,
    help="The former configuration returns by itself after this time unless the wave is confirmed; at least "
    "10 s.",
)  # fmt: skip
@click.option("--state", metavar="FILE", help="The state file; by default rollout-TIME.json in this folder.")
@click.option("--resume", metavar="FILE", help="Resume the interrupted rollout of this state file.")
@cli.dry_run_option
@cli.yes_option
@cli.all_option
@cli.on_option
@cli.output_option
@click.pass_context
def rollout(
    ctx: click.Context, /, file: str | None, resume: str | None, state: str | None, dry_run: bool, yes: bool,
    **settings: Any,
) -> None:  # fmt: skip
    """Change the configuration of many gateways in waves, after showing the plan and asking.

    FILE is a JSON merge patch (RFC 7396): the part of the configuration to change. Each gateway of a wave
    commits the change with a deadline. The wave is confirmed if all of its gateways are as healthy as before,
    and the probe succeeds. The first failure stops the rollout: gateways whose commit is not confirmed return
    to the former configuration by themselves. Gateways that have the configuration already are left out.

    A rollout that was stopped by Ctrl-C or a kill can be resumed.
    """
    from gatewayctl.rollout import Rollout, Step, list_waiting, read_state

    format = cli.get_format(ctx)
    if resume is not None:
        path = Path(resume)
        rollout_state = read_state(path)
        contexts = [_find_context(member) for member in rollout_state.members]
    else:
        if not cli.has_many_gateways(ctx):
            raise click.UsageError("--on or --all is required.", ctx)
        contexts = [gateway.context for gateway in cli.get_gateways(ctx)]
        _require_different_gateways(contexts)
        id = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
        path = Path(state or f"rollout-{id}.json")
        if path.exists():
            raise CommandError(ExitStatus.USAGE, f"{path} exists: resume that rollout with --resume")
        comment = f"rollout {id} of {Path(str(file)).name}"
        rollout_state = _create_state(comment, str(file), contexts, settings)
    gateways = _create_gateways(contexts, rollout_state.confirm_seconds)
    rollout = Rollout(
        rollout_state, path, gateways, lambda name, text: print_errors([text], name),
        max_threads=_MAX_WAVE_GATEWAYS,
    )  # fmt: skip
    try:
        if not rollout_state.is_accepted:
            if failed_members := rollout.plan():
                print_errors(["the plan failed: no running configuration was changed"])
                raise click.exceptions.Exit(get_exit_status_of_many(len(failed_members)))
            plan = _report_plan(rollout_state.members)
            has_changes = any(member.step is Step.PLANNED for member in rollout_state.members)
            if dry_run or not has_changes:
                show(plan, format)
                return
            cli.confirm(
                "Roll this out?", yes=yes, refusal="nothing was changed", report=plan, always_report=True
            )
            terminal.tell(f"after an interruption: gatewayctl rollout --resume {path}")
        rollout.run()
    except KeyboardInterrupt:
        print_errors(list_waiting(rollout_state.members))
        raise
    finally:
        if rollout.close():
            print_errors([f"not all gateways are settled; resume with: gatewayctl rollout --resume {path}"])
    show(_list_results(rollout_state.members), format)
    if failed_members := rollout.failed_members:
        raise click.exceptions.Exit(get_exit_status_of_many(len(failed_members)))


def _find_context(member: Member) -> Context:
    """Return the context of a member. Raises BadContext if there is no such context any more, and
    CommandError if the context has another URL."""
    context = ContextsFile(os.environ).read().get(member.name)
    if context.url != member.url:
        reason = f"the context {member.name} has the URL {context.url} now, not {member.url}"
        raise CommandError(ExitStatus.USAGE, reason)
    return context


def _require_different_gateways(contexts: Sequence[Context]) -> None:
    """Raise CommandError if two contexts have the same URL: the gateway would get the change twice at
    once."""
    names_by_url = defaultdict(list)
    for context in contexts:
        names_by_url[context.url].append(context.name)
    for url, names in names_by_url.items():
        if len(names) > 1:
            reason = f"{' and '.join(names)} are the same gateway, {url}: use --on to select one of them"
            raise CommandError(ExitStatus.USAGE, reason)


def _create_state(comment: str, file: str, contexts: Sequence[Context], settings: Record) -> RolloutState:
    """Return the state of a new rollout of the patch in `file`. Raises CommandError if the file cannot be
    read or is not a patch."""
    from gatewayctl.rollout import MIN_CONFIRM_SECONDS, Member, RolloutState

    if settings["confirm_seconds"] < MIN_CONFIRM_SECONDS:
        reason = f"--confirm-within: must be at least {MIN_CONFIRM_SECONDS} s"
        raise CommandError(ExitStatus.USAGE, reason)
    patch = _read_patch(file)
    printable_comment = "".join(filter(str.isprintable, comment))[:MAX_COMMENT_LENGTH]
    members = [Member(context.name, context.url) for context in contexts]
    return RolloutState(printable_comment, patch, members, **settings)


def _create_gateways(contexts: Sequence[Context], confirm_seconds: int) -> dict[str, RemoteGateway]:
    from gatewayctl.rollout import compute_request_seconds

    timeout = compute_request_seconds(confirm_seconds)
    return {context.name: RemoteGateway(context, timeout=timeout) for context in contexts}


def _report_plan(members: Sequence[Member]) -> Report:
    """Return the difference on each gateway, and a table with the wave and the effect on each gateway. Equal
    differences are shown once, with the names of their gateways."""
    from gatewayctl.rollout import Step

    records, names_by_diff = [], defaultdict(list)
    for member in members:
        difference = member.difference if member.step is Step.PLANNED else None
        effect = describe_effect(difference) if difference else ["no change: the configuration runs already"]
        if difference:
            names_by_diff[difference["diff"].rstrip("\n")].append(member.name)
        records.append(
            {
                CONTEXT: member.name,
                "wave": _name_wave(member) if difference else None,
                "effect": "; ".join(effect),
                "difference": difference,
            }
        )
    diffs = [f"{', '.join(names)}:\n{diff}" for diff, names in names_by_diff.items()]
    return Report("\n".join(diffs), records, is_diff=True, table=ResultList(records, _PLAN_COLUMNS))


def _name_wave(member: Member) -> str:
    return str(member.wave) if member.wave else "canary"


def _list_results(members: Sequence[Member]) -> ResultList:
    from gatewayctl.rollout import Step

    results = {
        Step.NEW: "not changed",
        Step.PLANNED: "not changed",
        Step.UNCHANGED: "had it already",
        Step.CONFIRMED: "confirmed",
        Step.RETURNED: "returned",
    }
    records = [
        {
            CONTEXT: member.name,
            "wave": None if member.step is Step.UNCHANGED else _name_wave(member),
            "result": results.get(member.step, "unknown"),
            "problem": member.problem or None,
        }
        for member in members
    ]
    return ResultList(records, _RESULT_COLUMNS)


def _read_patch(file: str) -> Record:
    """Return the patch in a file, or in standard input if `file` is `-`. Raises CommandError if the file
    cannot be read or is not a patch."""
    from gatewayctl.merge_patch import compare

    patch = parse_configuration(read_text(file, f"the configuration from {file}"))
    # A patch that cannot be applied to any gateway is refused before the first request.
    compare(patch, {})
    return patch


def _convert_patch(ctx: click.Context, param: click.Parameter, file: str) -> Record:
    """Return the patch in a file. click calls this function once, as the callback of an option. Raises
    CommandError if the file cannot be read or is not a patch."""
    # A shell that asks for completions needs no patch.
    return {} if ctx.resilient_parsing else _read_patch(file)


@cli.command()
@click.option(
    "--against", "patch", metavar="FILE", required=True, callback=_convert_patch,
    help="A JSON merge patch (RFC 7396); - is standard input.",
)  # fmt: skip
@cli.read_command
def drift(gateway: RemoteGateway, patch: Record) -> ResultList:
    """Show where the running configuration differs from the part of a configuration in FILE.

    The exit status says whether something differs. Gateways do not show secrets, so secrets are not
    compared.
    """
    from gatewayctl.merge_patch import compare

    changes = compare(patch, gateway.get(CONFIGURATION_PATH))
    records = [record for change in changes for record in list_differences(change)]
    differs = any(record["result"] == _DIFFERS for record in records)
    return ResultList(records, _DRIFT_COLUMNS, ExitStatus.REFUSED if differs else ExitStatus.SUCCESS)


def list_differences(change: Change) -> Iterator[Record]:
    """Yield a record for each single value of a change that differs or is a secret."""
    from gateway_contract.configuration import field_at
    from gatewayctl.merge_patch import ABSENT, normalize

    expected, actual = (
        {} if value is ABSENT else dict(list_values(value, change.path))
        for value in (change.masked_expected, change.actual)
    )
    for path in dict.fromkeys((*expected, *actual)):
        values = {"expected": expected.get(path), "actual": actual.get(path)}
        if list(values.values()) == [MASK, MASK]:
            yield {"path": path, **values, "result": _NOT_COMPARED}
        elif len({repr(normalize(value, field_at(parse_path(path)))) for value in values.values()}) > 1:
            yield {"path": path, **values, "result": _DIFFERS}
