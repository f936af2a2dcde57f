"""What each lock must do, run over every backend, driver and form."""
