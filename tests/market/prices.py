"""Made-up raw prices for the tests of the gate and of the sources."""

import numpy as np
import pandas as pd

from podracer.market.raw import RawPrices
from podracer.market.sessions import sessions_of

DATES = sessions_of("XNYS")


def clean_frame(num_sessions=120, tickers=("A", "B", "C"), seed=0, first="2019-01-02"):
    """A clean long frame with all columns; nothing in it breaks a rule."""
    rng = np.random.default_rng(seed)
    dates = DATES[first <= DATES][:num_sessions]
    frames = []
    for tic in tickers:
        # Bounded moves: no draw may look like a defect.
        moves = rng.uniform(0.002, 0.02, num_sessions) * rng.choice([-1, 1], num_sessions)
        close = np.round(50 * np.exp(np.cumsum(moves)), 4)
        open_ = np.round(close * (1 + rng.uniform(-0.004, 0.004, num_sessions)), 4)
        high = np.round(np.maximum(open_, close) * (1 + rng.uniform(0.001, 0.01, num_sessions)), 4)
        low = np.round(np.minimum(open_, close) * (1 - rng.uniform(0.001, 0.01, num_sessions)), 4)
        frames.append(
            pd.DataFrame(
                {
                    "date": dates, "tic": tic, "open": open_, "high": high, "low": low,
                    "close": close, "volume": rng.integers(1_000, 9_000, num_sessions).astype(float),
                    "dividend": 0.0, "split": 0.0,
                }
            )
        )  # fmt: skip
    frame = pd.concat(frames).sort_values(["date", "tic"], kind="stable")
    return frame.reset_index(drop=True)


def raw(frame, **facts):
    """Raw prices of a frame."""
    return RawPrices(frame, "made up", "XNYS", **facts)


def cell(frame, tic, i):
    """The row label of a ticker's i-th row."""
    return frame.index[frame["tic"] == tic][i]
