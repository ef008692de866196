"""The surroundings of a running flow: signals, event loops, and requests from Prefect.

- `interrupts`: Ctrl-C and other signals that end a study
- `event_loop`: flows that can be called inside an event loop
- `run_requests`: runs that are cancelled or suspended in Prefect
"""
