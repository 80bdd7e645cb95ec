"""Baselines: popularity, ALS, EASE, and two that rank by features, on the same data and evaluation."""
