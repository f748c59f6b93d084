"""Market data: our gate, features, content hash and snapshots against pandas-only equivalents.

100 tickers over 10 years of made-up prices. The peers find the same cells and compute the same
values, which is checked before anything is timed.
"""

import hashlib
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.pairs import Ratio, arguments, run
from podracer.market import features
from podracer.market.adjustment import adjusted
from podracer.market.findings import QualitySettings
from podracer.market.quality import check
from podracer.market.raw import PRICES, RawPrices
from podracer.market.sessions import sessions_of
from podracer.market.snapshot import read_snapshot, write_snapshot

SESSIONS, TICKERS = 2520, 100
NAMES = ("macd", "rsi_30", "bollinger_position", "sma_30_distance", "sma_60_distance", "cci_30")


def made_up(tickers: int) -> RawPrices:
    """A clean random walk with opens, highs, lows and volumes."""
    rng = np.random.default_rng(0)
    dates = sessions_of("XNYS")
    dates = dates[dates >= "2012-01-03"][:SESSIONS]
    shape = (SESSIONS, tickers)
    moves = rng.uniform(0.002, 0.02, shape) * rng.choice([-1, 1], shape)
    close = 50 * np.exp(np.cumsum(moves, axis=0))
    open_ = close * (1 + rng.uniform(-0.004, 0.004, shape))
    frame = pd.DataFrame(
        {
            "date": np.repeat(dates, tickers),
            "tic": np.tile([f"T{a:03d}" for a in range(tickers)], SESSIONS),
            "open": open_.ravel(),
            "high": (np.maximum(open_, close) * 1.005).ravel(),
            "low": (np.minimum(open_, close) * 0.995).ravel(),
            "close": close.ravel(),
            "volume": rng.integers(1_000, 9_000, shape).astype(float).ravel(),
        }
    )
    return RawPrices(frame, "made up", "XNYS")


def pandas_gate(frame: pd.DataFrame) -> int:
    """The rules as one would write them with groupby; returns the number of cells found."""
    frame = frame.sort_values(["tic", "date"])
    found = int(frame.duplicated(["date", "tic"]).sum())
    found += int((~(frame[list(PRICES)] > 0)).any(axis=1).sum())
    found += int((frame["high"] < frame[["open", "close"]].max(axis=1)).sum())
    found += int((frame["low"] > frame[["open", "close"]].min(axis=1)).sum())
    found += int((frame["volume"] == 0).sum())

    def of_ticker(rows: pd.DataFrame) -> int:
        ratio = rows["open"] / rows["close"].shift()
        move = np.log(ratio).abs()
        typical = move.shift().rolling(60, min_periods=1).median()
        near = pd.concat(
            [(ratio * r - 1).abs() <= 0.02 for r in (1.5, 2, 3, 4, 5, 7, 10, 20)], axis=1
        )
        splits = int((near.any(axis=1) & (move > 8 * typical)).sum())
        run_length = rows["close"].groupby((rows["close"].diff() != 0).cumsum()).cumcount()
        returns = rows["close"].pct_change().abs()
        return splits + int((run_length >= 4).sum()) + int((returns > 12 * returns.median()).sum())

    return found + sum(of_ticker(rows) for _, rows in frame.groupby("tic"))


def pandas_features(frame: pd.DataFrame) -> dict[str, pd.Series]:
    """The six indicators with rolling windows, ticker by ticker."""
    parts: dict[str, list[pd.Series]] = {name: [] for name in NAMES}
    for _, rows in frame.sort_values(["tic", "date"]).groupby("tic"):
        close = rows["close"]
        fast, slow = close.ewm(span=12).mean(), close.ewm(span=26).mean()
        parts["macd"].append((fast - slow) / close)
        change = close.diff()
        up = change.clip(lower=0).ewm(alpha=1 / 30).mean()
        down = (-change.clip(upper=0)).ewm(alpha=1 / 30).mean()
        parts["rsi_30"].append((100 - 100 / (1 + up / down)) / 50 - 1)
        window = close.rolling(20)
        parts["bollinger_position"].append((close - window.mean()) / (2 * window.std(ddof=0)))
        for n in (30, 60):
            parts[f"sma_{n}_distance"].append(np.log(close / close.rolling(n).mean()))
        typical = (rows["high"] + rows["low"] + close) / 3
        mean = typical.rolling(30).mean()
        deviation = typical.rolling(30).apply(lambda x: np.abs(x - x.mean()).mean(), raw=True)
        parts["cci_30"].append((typical - mean) / (0.015 * deviation) / 100)
    return {name: pd.concat(series) for name, series in parts.items()}


def check_peers(raw: RawPrices) -> None:
    """Stop if the peers do not find and compute what we do."""
    panel, report = check(raw, QualitySettings())
    if len(report.findings) != pandas_gate(raw.frame):
        raise SystemExit("the pandas gate does not find our cells")
    view = adjusted(panel)
    theirs = pandas_features(raw.frame)
    for name in NAMES:
        ours_DA = features.MARKET_FEATURES[name].compute(view)
        # Exponential means differ by their seed until it is forgotten.
        peer_DA = theirs[name].to_numpy().reshape(len(panel.tickers), -1).T
        if not np.allclose(ours_DA[1000:], peer_DA[1000:], rtol=1e-6, atol=1e-9):
            raise SystemExit(f"the pandas {name} is not ours")


def main() -> None:
    """Check that both sides agree, then time them."""
    options = arguments()
    raw = made_up(TICKERS)
    cells = len(raw.frame)
    check_peers(made_up(5))
    folder = Path(tempfile.mkdtemp())
    write_snapshot(raw, folder / "snapshot")
    raw.frame.to_csv(folder / "prices.csv", index=False)

    def ours() -> None:
        panel, _ = check(raw, QualitySettings())
        view = adjusted(panel)
        for name in NAMES:
            features.MARKET_FEATURES[name].compute(view)

    def peer() -> None:
        pandas_gate(raw.frame)
        pandas_features(raw.frame)

    def peer_hash() -> str:
        text = raw.frame.sort_values(["date", "tic"]).to_csv(index=False)
        return hashlib.sha256(text.encode()).hexdigest()

    run(
        {
            "gate and features": (ours, cells),
            "gate and features, pandas": (peer, cells),
            "content hash": (lambda: raw.content_hash, cells),
            "content hash of the CSV": (peer_hash, cells),
            "load and verify a snapshot": (lambda: read_snapshot(folder / "snapshot"), cells),
            "load a CSV, pandas": (
                lambda: pd.read_csv(folder / "prices.csv", parse_dates=["date"]),
                cells,
            ),
        },
        [
            Ratio("gate and features", "gate and features, pandas", 4.0, 8.0),
            Ratio("content hash", "content hash of the CSV", 5.0, 10.0),
            Ratio("load and verify a snapshot", "load a CSV, pandas", 0.6, 1.0),
        ],
        repeats=2 if options.quick else 7,
        as_json=options.json,
    )


if __name__ == "__main__":
    main()
