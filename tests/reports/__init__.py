"""Inputs of reports: made-up ones, and trials as a ledger has them."""
