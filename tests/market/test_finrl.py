"""Our indicators against FinRL's own values for 29 Dow names, 2020 and 2021.

FinRL's history starts before the file's, so what remembers its start is compared after 250 sessions.
Two differ by definition: FinRL's Bollinger bands use the sample deviation, ours TA-Lib's population
deviation; FinRL's DX smooths with an exponential mean of span 30, ours with Wilder's of 1/30.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from podracer.market.features import MARKET_FEATURES
from podracer.market.prices import PricePanel

FILE = Path(__file__).parents[1] / "data" / "finrl_dow29.csv.gz"


@pytest.fixture(scope="module")
def finrl():
    frame = pd.read_csv(FILE, parse_dates=["date"])
    return {c: frame.pivot(index="date", columns="tic", values=c) for c in frame.columns[3:]}


@pytest.fixture(scope="module")
def panel(finrl):
    closes = finrl["close"]
    fields = {c: finrl[c].to_numpy() for c in ("open", "high", "low", "close")}
    dates = closes.index.to_numpy("datetime64[D]")
    return PricePanel("dow29", "", dates, tuple(closes), fields, np.isfinite(fields["close"]))


# Ours is on a scale of its own: this is theirs from ours.
THEIRS = {
    "macd": ("macd", lambda ours, close: ours * close, 250, 2e-3),
    "rsi_30": ("rsi_30", lambda ours, close: 50 * (ours + 1), 250, 2e-3),
    "cci_30": ("cci_30", lambda ours, close: 100 * ours, 30, 1e-9),
    "sma_30_distance": ("close_30_sma", lambda ours, close: close / np.exp(ours), 30, 1e-12),
    "sma_60_distance": ("close_60_sma", lambda ours, close: close / np.exp(ours), 60, 1e-12),
}


@pytest.mark.parametrize("name", THEIRS)
def test_an_indicator_agrees_with_finrls_after_its_warm_up(finrl, panel, name):
    column, convert, warmup, tolerance = THEIRS[name]
    ours = convert(MARKET_FEATURES[name].compute(panel), panel.fields["close"])[warmup:]
    theirs = finrl[column].to_numpy()[warmup:]
    gap = np.abs(ours - theirs).max(0) / theirs.std(0)
    assert gap.max() < tolerance


def test_bollinger_bands_differ_by_their_deviation_and_by_nothing_else(finrl, panel):
    position = MARKET_FEATURES["bollinger_position"].compute(panel)[30:]
    middle = (finrl["boll_ub"] + finrl["boll_lb"]).to_numpy()[30:] / 2
    width = (finrl["boll_ub"] - finrl["boll_lb"]).to_numpy()[30:] / 2
    theirs = (panel.fields["close"][30:] - middle) / width
    assert theirs == pytest.approx(position * np.sqrt(19 / 20), rel=1e-6, abs=1e-9)


def directional_index(high, low, smooth):
    """DX from its definition: smoothed up and down moves of one ticker."""
    up, down = high.diff(), -low.diff()
    plus = smooth(up.where((up > 0) & (up > down), 0.0))
    minus = smooth(down.where((down > 0) & (down > up), 0.0))
    return 100 * (plus - minus).abs() / (plus + minus)


def test_directional_indices_differ_by_their_smoothing_and_by_nothing_else(finrl, panel):
    ours = 100 * MARKET_FEATURES["dx_30"].compute(panel)
    for a, tic in enumerate(panel.tickers):
        high, low = finrl["high"][tic], finrl["low"][tic]
        theirs = directional_index(high, low, lambda x: x.ewm(span=30).mean())
        assert theirs.to_numpy()[250:] == pytest.approx(
            finrl["dx_30"][tic].to_numpy()[250:], abs=0.05
        )
        wilder = directional_index(high, low, lambda x: x.ewm(alpha=1 / 30).mean())
        assert ours[250:, a] == pytest.approx(wilder.to_numpy()[250:], abs=0.1)
