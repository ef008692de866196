"""Waiting for what others do: never a trial's own time, and never without an end.

`waited_seconds` counts it, so that neither cost nor limits of a trial have it. `causes` tell whose
fault an error is, and `lost` has the errors for which waiting is useless. `outage` waits until a
database or bucket answers again, and a `heartbeat` continues after that. What a signal may not
break off is `uninterrupted`.
"""
