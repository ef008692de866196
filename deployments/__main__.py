"""Entry point of the command line: `python -m prefect_tune.deployments`."""

from prefect_tune.deployments.cli.command import main

if __name__ == "__main__":
    main(prog_name="prefect-tune")
