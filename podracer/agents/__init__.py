"""Populations of learning agents, one algorithm per file."""
