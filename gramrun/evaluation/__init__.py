"""Ranking protocol and metrics, baselines, export of embeddings, nearest neighbours."""
