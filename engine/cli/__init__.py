"""kakeya-engine: the only engine modules that print."""
