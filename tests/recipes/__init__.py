"""The recipes: audit chain, outbox, slots and jobs, across processes and in both forms."""
