"""Perdura: durable memory for ordinary servers.

Here: planning it, from write traces to a battery.
"""

from perdura._native import __version__

__all__ = ["__version__"]
