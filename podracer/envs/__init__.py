"""The trading rule, its backends, the vectorised environment and the only evaluator."""
