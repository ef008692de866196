"""Documents of reports."""
