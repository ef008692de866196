"""Finished studies made without servers, and programs run as users run them."""
