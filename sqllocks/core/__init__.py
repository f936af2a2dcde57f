"""Decisions: how often to ask, what an answer means, what is undone; no thread, no event loop, no clock."""
