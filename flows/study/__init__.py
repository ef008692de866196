"""A study in the ledger: open in this process (`study`), read (`summary`), used and removed."""
