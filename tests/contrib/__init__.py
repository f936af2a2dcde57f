"""The parts for frameworks, and the examples, which are run as they are."""
