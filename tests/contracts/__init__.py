"""Test suites that every implementation of an interface inherits."""
