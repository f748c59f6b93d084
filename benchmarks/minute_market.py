"""One year of minutes for 89 tickers: time and memory from a long frame to a market on disk."""

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from podracer.market.findings import QualitySettings
from podracer.market.market import build_market, open_market
from podracer.market.quality import check
from podracer.market.raw import RawPrices
from podracer.market.sessions import bars_of
from podracer.market.settings import FeatureSettings
from podracer.market.snapshot import read_snapshot, write_snapshot

FEATURES = FeatureSettings(
    asset=("reversal_1m", "volatility_60"), market=("log_return_1", "rsi_30", "macd")
)


def made_up(tickers: int, last: str) -> RawPrices:
    """Closes and volumes of each minute from January 2022 on."""
    starts = bars_of("XNYS", "1m", np.datetime64("2022-01-03"), np.datetime64(last))
    rng = np.random.default_rng(0)
    shape = (len(starts), tickers)
    close = 50 * np.exp(np.cumsum(1e-4 * rng.standard_normal(shape), axis=0))
    frame = pd.DataFrame(
        {
            "date": np.repeat(starts.astype("datetime64[ns]"), tickers),
            "tic": np.tile([f"T{a:02d}" for a in range(tickers)], len(starts)),
            "close": close.ravel(),
            "volume": rng.integers(1, 900, shape).astype(float).ravel(),
        }
    )
    return RawPrices(frame, "minutes", "XNYS", "1m")


def main() -> None:
    """Run every step once; print seconds and the peak of memory."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="under 50 s: a quarter, 20 tickers")
    parser.add_argument("--json", action="store_true", help="one JSON line")
    options = parser.parse_args()
    raw = made_up(20, "2022-03-31") if options.quick else made_up(89, "2022-12-30")
    folder = Path(tempfile.mkdtemp())
    seconds: dict[str, float] = {}

    def timed(name, call):  # type: ignore[no-untyped-def]
        started = time.perf_counter()
        found = call()
        seconds[name] = round(time.perf_counter() - started, 1)
        return found

    timed("write snapshot", lambda: write_snapshot(raw, folder / "snapshot"))
    raw = timed("read snapshot", lambda: read_snapshot(folder / "snapshot"))
    panel, _ = timed("gate", lambda: check(raw, QualitySettings()))
    market = timed("features", lambda: build_market(panel, FEATURES))
    timed("save market", lambda: market.save(folder / "market"))
    timed("open market", lambda: open_market(folder / "market"))
    facts = {
        "bars": len(market.dates_D),
        "tickers": market.num_assets,
        "market_mib": round(sum(p.stat().st_size for p in (folder / "market").iterdir()) / 2**20),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10),
        "seconds": seconds,
    }
    print(json.dumps(facts) if options.json else "\n".join(f"{k}: {v}" for k, v in facts.items()))


if __name__ == "__main__":
    main()
