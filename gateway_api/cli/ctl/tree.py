"""All commands, as `gatewayctl --help` and the man pages show them."""

import click

from gateway_api.cli.ctl.command import group
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
    status,
    subscribers,
    traffic,
    users,
    webhooks,
)
from gateway_api.cli.ctl.failures import MEANINGS
from gateway_api.cli.ctl.invocation import all_option, columns_option, context_option, output_option
from gateway_api.version import VERSION

_EPILOG = "Exit status: " + "; ".join(f"{int(status)}, {about}" for status, about in MEANINGS.items()) + "."


@group(params=[context_option(), all_option(), output_option(), columns_option()], epilog=_EPILOG)
@click.version_option(VERSION, message="%(prog)s %(version)s")
def gatewayctl() -> None:
    """The command line of a subscriber gateway's management API.

    `gatewayctl login` first, then for example `gatewayctl subscribers find alice`. The options --context,
    --all and -o may also stand after the command.
    """


for _title, _commands in {
    "Login": (login.login, login.logout, login.contexts),
    "Subscribers": (subscribers.subscribers, jobs.jobs, events.events),
    "Network": (
        network.interfaces,
        network.vlans,
        network.qos,
        network.routes,
        network.bgp,
        network.cgnat,
        network.demux,
        network.faults,
        traffic.over_time,
    ),
    "Configuration": (configuration.config, users.users, backup.backup, backup.restore),
    "Operation": (
        status.status,
        health.health,
        health.version,
        audit.audit,
        webhooks.webhooks,
        rescue.rescue,
        completion.completion,
    ),
}.items():
    gatewayctl.add_section(_title, _commands)

for _title, _commands in {
    "Sessions": (subscribers.list_, subscribers.find, subscribers.show, subscribers.summary),
    "Changes": (subscribers.disconnect, rates.rate),
    "Past": (history.history, history.timeline, history.failed_sign_ons, history.flapping),
    "Traffic": (traffic.watch, traffic.top),
}.items():
    subscribers.subscribers.add_section(_title, _commands)
