"""The MLflow model registry as the tournament's leaderboard."""
