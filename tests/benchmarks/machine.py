"""What a figure was measured on."""

import os
import platform

import psutil

__all__ = ["describe"]


def describe() -> str:
    """Cores and load, to stand beside every figure."""
    load = ", ".join(f"{x:.2f}" for x in os.getloadavg())
    return f"{psutil.cpu_count()} cores, Python {platform.python_version()}, load {load}"
