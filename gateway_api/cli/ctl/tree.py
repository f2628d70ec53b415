"""All commands, as `gatewayctl --help` and the man pages show them."""

import click

from gateway_api.cli.ctl.commands import (
    audit,
    backup,
    completion,
    configuration,
    events,
    health,
    history,
    jobs,
    login,
    network,
    rates,
    rescue,
    subscribers,
    traffic,
    users,
    webhooks,
)
from gateway_api.cli.ctl.failures import MEANINGS
from gateway_api.cli.ctl.invocation import all_option, columns_option, context_option, output_option
from gateway_api.version import VERSION

_EPILOG = "Exit status: " + "; ".join(f"{int(status)}, {about}" for status, about in MEANINGS.items()) + "."


@click.group(params=[context_option(), all_option(), output_option(), columns_option()], epilog=_EPILOG)
@click.version_option(VERSION, message="%(prog)s %(version)s")
def gatewayctl() -> None:
    """The command line of a subscriber gateway's management API.

    `gatewayctl login` first, then for example `gatewayctl subscribers find alice`. The options --context,
    --all and -o may also stand after the command.
    """


for _command in (
    login.login,
    login.logout,
    login.contexts,
    subscribers.subscribers,
    jobs.jobs,
    configuration.config,
    network.interfaces,
    network.vlans,
    network.qos,
    network.routes,
    network.bgp,
    network.cgnat,
    network.demux,
    network.faults,
    traffic.over_time,
    events.events,
    webhooks.webhooks,
    users.users,
    audit.audit,
    health.health,
    health.version,
    backup.backup,
    backup.restore,
    rescue.rescue,
    completion.completion,
):
    gatewayctl.add_command(_command)

for _command in (
    rates.rate,
    history.history,
    history.timeline,
    history.failed_sign_ons,
    history.flapping,
    traffic.watch,
    traffic.top,
):
    subscribers.subscribers.add_command(_command)
