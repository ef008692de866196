"""Contract tests of every method, and helpers for tests of stores."""
