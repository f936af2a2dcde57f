"""Whole processes as state machines: a provider's keeper, its waiters and the tasks that use it.

``tests.exploration`` explores single calls; here the strands of one process share what the process
believes. The table, the faults and the search are the same. ``port`` and ``tasks`` run the real core,
``lives`` replays it, ``moves`` and ``effects`` say what may happen, and ``properties`` what must not.
"""
