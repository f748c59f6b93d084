"""Pure functions on daily returns: metrics and statistics."""
