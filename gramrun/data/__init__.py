"""Raw files, corpora, shards and index streams. Knows no models."""
