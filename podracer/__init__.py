"""Tournaments of deep-RL trading agents that tell the truth about themselves."""
