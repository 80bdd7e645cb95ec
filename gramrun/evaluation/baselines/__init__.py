"""Baselines: popularity, implicit ALS and exact ALS, on the same data and the same evaluation."""
