"""How and where it runs: the command line, the embedded server, serving deployments."""
