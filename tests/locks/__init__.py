"""Session locks and elections: CONFORMANCE I, J and K."""
