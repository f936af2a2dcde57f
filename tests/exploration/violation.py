"""What every check of the exploration raises."""

__all__ = ["Violation"]


class Violation(AssertionError):
    """A property does not hold; the explorer adds how it came to that."""
