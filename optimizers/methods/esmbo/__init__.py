"""ESMBO: its `declaration`, `esmbo`, the method, and `rendering` of its decisions."""
