"""Baselines: popularity, implicit ALS, exact ALS and EASE, on the same data and the same evaluation."""
