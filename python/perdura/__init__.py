"""Perdura: durable memory for ordinary servers.

The package ``perdura.plan`` says how much battery a server needs, from traces of its writes.
"""

from perdura._native import __version__

__all__ = ["__version__"]
