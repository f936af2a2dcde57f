"""What goes wrong between a process and its server, on demand."""

from tests.faults.relay import Direction, Relay

__all__ = ["Direction", "Relay"]
