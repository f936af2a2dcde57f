"""Small tested parts on top of the locks, to be used as they are: audit chain, outbox, schedules, jobs.

Each keeps its rows in a table of the application's own metadata, so that its migrations make it.
"""
