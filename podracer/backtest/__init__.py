"""Policy and baselines on a held-out window."""
