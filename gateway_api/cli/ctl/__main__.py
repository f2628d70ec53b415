"""Starts `gatewayctl`."""

import io
import os
import sys

import click

from gateway_api.cli.ctl import terminal
from gateway_api.cli.ctl.failures import ExitStatus, complain, status_of
from gateway_api.cli.ctl.tree import gatewayctl
from gateway_api.client.errors import ClientError


def main() -> int:
    """The exit status, one of ExitStatus or 128 and the number of a signal."""
    terminal.prepare()
    try:
        status = gatewayctl.main(prog_name="gatewayctl", standalone_mode=False)
        return status if isinstance(status, int) else ExitStatus.DONE
    except ClientError as failure:
        complain(failure.lines)
        return status_of(failure)
    except click.UsageError as error:
        said = io.StringIO()
        error.show(said)
        # It repeats the arguments.
        for each in said.getvalue().splitlines():
            terminal.tell(each)
        return ExitStatus.USAGE
    except (click.Abort, KeyboardInterrupt):
        terminal.tell("")
        return ExitStatus.INTERRUPTED
    except BrokenPipeError:
        # The reader of the output has seen enough. The interpreter would complain at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitStatus.DONE


if __name__ == "__main__":
    sys.exit(main())
