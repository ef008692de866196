"""Waiting for what others do: never a trial's own time, and never without an end.

`waited_seconds` counts it, so that neither cost nor limits of a trial have it, and puts off signals
that would break off a transaction. `outage` tells whose fault an error is, and waits until a
database or bucket answers again; a `heartbeat` continues after that.
"""
