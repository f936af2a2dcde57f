"""Parts for frameworks, each behind an optional extra of its name."""
