"""A checked price panel.

Shapes: D bars, A assets.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class PricePanel:
    """Prices of a universe on its common bars, after the gate.

    Attributes:
        name: what to call the data.
        content_hash: of the raw prices behind it.
        dates_D: the session of each bar, datetime64[D].
        starts_D: when each bar starts in UTC, datetime64[s]; None for daily bars.
        tickers: the universe, in the order of the asset axis.
        fields: each available column of `podracer.market.raw.VALUES` as float64 (D, A); NaN where a
            ticker has no price that can be trusted. Only `close` is always there.
        tradable_DA: the ticker traded, and nothing about the cell is in quarantine.
        index_D: level of a price index for the report, or None.
        is_adjusted: the source had already adjusted the close.
        notes: what a reader of results on these prices must know.
    """

    name: str
    content_hash: str
    dates_D: np.ndarray
    tickers: tuple[str, ...]
    fields: dict[str, np.ndarray]
    tradable_DA: np.ndarray
    index_D: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    starts_D: np.ndarray | None = None
    is_adjusted: bool = False
