"""The programs with which shells complete the words of this command."""

import click
from click.shell_completion import get_completion_class

from gateway_api.cli.ctl import terminal
from gateway_api.cli.ctl.command import command

#: The variable by which a shell asks for completions.
VARIABLE = "_GATEWAYCTL_COMPLETE"
#: The name of the file in which each shell looks for it.
FILES = {"bash": "gatewayctl", "zsh": "_gatewayctl", "fish": "gatewayctl.fish"}


@command()
@click.argument("shell", type=click.Choice(tuple(FILES)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Prints the completion for a shell, which the package has installed already.

    In ~/.bashrc: eval "$(gatewayctl completion bash)"
    """
    terminal.write(source(ctx.find_root().command, shell))


def source(root: click.Command, shell: str) -> str:
    """The program for a shell."""
    made = get_completion_class(shell)
    if made is None:
        raise ValueError(f"there is no completion for {shell}")
    return made(root, {}, "gatewayctl", VARIABLE).source().strip() + "\n"
