"""Errors, files, locks, interruption, provenance and processes: what all other packages use."""
