"""A checked price panel.

Shapes: D sessions, A assets.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
import pandas as pd

from podracer.errors import MarketDataError

FIELDS = ("open", "high", "low", "close", "adj_close", "volume")


@dataclass(frozen=True)
class PricePanel:
    """Prices of a universe on its common sessions.

    `fields` maps each available column of `FIELDS` to a float64 array (D, A); NaN marks a session
    before a ticker's first or after its last price. Only `close` is always there.
    """

    dates_D: np.ndarray
    tickers: tuple[str, ...]
    fields: dict[str, np.ndarray]
    index_D: np.ndarray | None = None

    @property
    def content_hash(self) -> str:
        """The sha256 of every value, independent of file format, writer and row order."""
        digest = hashlib.sha256()
        digest.update(self.dates_D.astype("datetime64[D]").astype("<i8").tobytes())
        digest.update("\n".join(self.tickers).encode())
        for name in sorted(self.fields):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(self.fields[name], dtype="<f8").tobytes())
        if self.index_D is not None:
            digest.update(b"index")
            digest.update(np.ascontiguousarray(self.index_D, dtype="<f8").tobytes())
        return digest.hexdigest()

    def to_frame(self) -> pd.DataFrame:
        """Return the panel in long form, sorted by (date, tic), without the missing cells."""
        dates = np.repeat(self.dates_D, len(self.tickers))
        columns = {"date": dates, "tic": np.tile(self.tickers, len(self.dates_D))}
        frame = pd.DataFrame(columns | {k: v.ravel() for k, v in self.fields.items()})
        return frame[frame["close"].notna()].reset_index(drop=True)


def panel_from_frame(
    frame: pd.DataFrame, source: str, tickers: tuple[str, ...] | None = None
) -> PricePanel:
    """Pivot a checked long frame (`date`, `tic`, `close`, …) into a panel.

    Args:
        frame: one row a (date, tic); see `podracer.market.quality.check_frame`.
        source: what to call the data in messages.
        tickers: the universe in the order wanted; all of the frame's, sorted, if None.

    Raises:
        MarketDataError: if a ticker is not in the data.
    """
    available = sorted(set(frame["tic"]))
    wanted = tuple(available) if tickers is None else tickers
    if unknown := [t for t in wanted if t not in set(available)]:
        raise MarketDataError(
            f"{source}: the data has no ticker {', '.join(map(repr, unknown))}. "
            f"It has {', '.join(available)}: correct data.tickers in params.yaml."
        )
    present = [c for c in FIELDS if c in frame.columns]
    wide = frame[frame["tic"].isin(wanted)].pivot(index="date", columns="tic", values=present)
    fields = {c: wide[c][list(wanted)].to_numpy(dtype=np.float64) for c in present}
    return PricePanel(wide.index.to_numpy("datetime64[D]"), wanted, fields)
