"""Scenarios taken from failures of real lock libraries: processes on real servers."""
