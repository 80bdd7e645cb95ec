"""Ranking: the protocol, metrics, baselines, and what a trained model gives: exports and neighbours."""
