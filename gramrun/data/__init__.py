"""Raw files, corpora, shards and index streams. Knows neither models nor configuration."""
