"""`prefect-tune completion`: what makes a shell complete commands, options and their values."""

import click

from prefect_tune.deployments.views.plain import echo_as_is

__all__ = ["completion"]


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    r"""Print the script that makes SHELL complete `prefect-tune`.

    It completes commands and options, and of their values the names of studies in the default
    store, methods and their options, spaces, metrics and files. To have it in each new shell:

    \b
    prefect-tune completion bash >> ~/.bashrc
    prefect-tune completion zsh >> ~/.zshrc
    prefect-tune completion fish > ~/.config/fish/completions/prefect-tune.fish
    """
    from click.shell_completion import get_completion_class

    script = get_completion_class(shell)
    assert script is not None  # noqa: S101 - click has all three
    main = click.get_current_context().find_root().command
    echo_as_is(script(main, {}, "prefect-tune", "_PREFECT_TUNE_COMPLETE").source())
