"""Errors, files, locks, interruption, provenance, processes: what every room uses."""
