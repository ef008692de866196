"""`python -m prefect_tune.deployments` is the command line."""

from prefect_tune.deployments.cli.command import main

if __name__ == "__main__":
    main(prog_name="prefect-tune")
