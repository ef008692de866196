"""JOPT, the reference that ADMM is compared with: its `declaration`, and `jopt`, the method."""
