"""The modules of this folder."""
