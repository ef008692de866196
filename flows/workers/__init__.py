"""Where trials run: Dask processes here or elsewhere, and what Prefect's server is told of them."""
