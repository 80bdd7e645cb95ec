"""Measurements to verdicts and one page: claims, their judgement, RESULTS.md."""
