"""The small real datasets that ship with the repository; see data/bundled/NOTICE."""

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from podracer.errors import MarketDataError
from podracer.market.prices import PricePanel, panel_from_frame
from podracer.market.quality import check_frame

BUNDLED = Path(__file__).resolve().parents[3] / "data" / "bundled"


@dataclass(frozen=True)
class BundledDataset:
    """One entry of the bundled manifest."""

    name: str
    title: str
    facts: dict[str, Any]

    @property
    def windows(self) -> dict[str, str]:
        """Train, selection and lockbox windows that suit the dataset."""
        return dict(self.facts["default_windows"])


def datasets() -> list[BundledDataset]:
    """Return the bundled datasets, the default one first."""
    manifest = json.loads((BUNDLED / "manifest.json").read_text(encoding="utf-8"))
    return [BundledDataset(name, facts["title"], facts) for name, facts in manifest.items()]


def load_bundled(name: str, tickers: tuple[str, ...] | None = None) -> PricePanel:
    """Load and check a bundled dataset.

    Raises:
        MarketDataError: if the name is unknown, a file's bytes are not those of the manifest, or
            a ticker is not in the dataset.
    """
    known = {d.name: d for d in datasets()}
    if name not in known:
        raise MarketDataError(
            f"data.dataset: there is no bundled dataset {name!r}. "
            f"Choose one of {', '.join(known)} (see `podracer data list`)."
        )
    facts = known[name].facts
    frames = {kind: _read_verified(file) for kind, file in facts["files"].items()}
    prices = check_frame(frames["prices"], f"bundled dataset {name}", facts["exchange"])
    panel = panel_from_frame(prices, f"bundled dataset {name}", tickers)
    if "index" not in frames:
        return panel
    level = frames["index"].set_index("date")["close"].reindex(pd.DatetimeIndex(panel.dates_D))
    return replace(panel, index_D=level.to_numpy(dtype=np.float64))


def _read_verified(file: dict[str, str]) -> pd.DataFrame:
    path = BUNDLED / file["name"]
    found = hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "no file"
    if found != file["sha256"]:
        raise MarketDataError(
            f"{path.name}: expected sha256 {file['sha256'][:12]}…, found {found[:12]}. "
            f"Restore the file with `git checkout data/bundled`."
        )
    return pd.read_parquet(path)
