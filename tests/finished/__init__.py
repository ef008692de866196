"""Finished studies made without servers, and programs run as their readers would."""
