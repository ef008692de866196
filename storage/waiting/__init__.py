"""Waiting for what others do: never a trial's own time, and never without an end.

`outage` tells whose fault an error is, and waits until a database or bucket answers again. It
counts the seconds of the wait, so that neither cost nor limits of a trial have them, and puts off
signals that would break off a transaction. A `heartbeat` continues after that.
"""
