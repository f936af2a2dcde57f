"""How the core is run: in the caller's thread, or on an event loop; connections, drivers, faults."""
