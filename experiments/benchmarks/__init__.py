"""Timings, each against a baseline in interleaved rounds; results go to results/bench/."""
