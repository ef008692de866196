"""Surroundings of a running flow: signals, event loops, and Prefect.

- `interrupts`: Ctrl-C and other signals that end a study
- `event_loop`: flows that are called in an event loop
- `run_requests`: runs that are cancelled or suspended in Prefect
"""
