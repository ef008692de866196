"""What a Dask worker does besides evaluating.

It runs tasks leanly (`dask_runner`), keeps the limits of trials, and proves that it is ready.
"""
