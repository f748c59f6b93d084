"""The small real datasets that ship with the repository; see data/bundled/NOTICE."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from podracer.errors import MarketDataError
from podracer.market.raw import RawPrices, choose_tickers

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


def load_bundled(name: str, tickers: tuple[str, ...] | None = None) -> RawPrices:
    """Load a bundled dataset.

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
    prices, universe = choose_tickers(frames["prices"], tickers, f"bundled dataset {name}")
    index = frames["index"].set_index("date")["close"] if "index" in frames else None
    notes = tuple(facts[k] for k in ("survivorship", "seen_before") if k in facts)
    return RawPrices(
        frame=prices,
        name=name,
        exchange=facts["exchange"],
        index=index,
        requested=universe,
        notes=notes,
        defects=tuple(facts["known_defects"]),
        is_adjusted=facts.get("is_adjusted", False),
    )


def _read_verified(file: dict[str, str]) -> pd.DataFrame:
    path = BUNDLED / file["name"]
    found = hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "no file"
    if found != file["sha256"]:
        raise MarketDataError(
            f"{path.name}: expected sha256 {file['sha256'][:12]}…, found {found[:12]}. "
            f"Restore the file with `git checkout data/bundled`."
        )
    return pd.read_parquet(path)
