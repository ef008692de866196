"""Inputs of reports that were never run."""
