"""What happens around a running flow: signals, event loops, and requests from Prefect.

- `interrupts`: Ctrl-C and other signals that end a study
- `event_loop`: flows that are called in an event loop
- `run_requests`: runs that are cancelled or suspended in Prefect
"""
