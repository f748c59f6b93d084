"""Prices become a checked, immutable, memory-mapped market."""
