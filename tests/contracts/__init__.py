"""The contract that every method is tested for, and helpers for tests of stores."""
