"""Inputs of reports without real studies."""
