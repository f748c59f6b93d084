"""A backtest as one self-contained HTML file."""
