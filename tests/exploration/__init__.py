"""The real core as a state machine: every interleaving, fault and interruption within bounds.

``port`` and ``stage`` turn calls of the core into questions that the explorer answers, ``table`` and
``families`` model the lock table, ``world`` and ``moves`` say what may happen next, ``properties``
what must never happen, and ``explorer`` goes everywhere. ``python -m tests.exploration`` tells how far.
"""
