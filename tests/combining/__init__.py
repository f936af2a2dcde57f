"""Callers that share statements: nobody is forgotten, served twice, or held up by somebody else's end."""
