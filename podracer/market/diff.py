"""What changed between two versions of the same prices."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from podracer.market.raw import KEYS, VALUES, RawPrices, used_columns, value_columns

# Yahoo answers the same question with another seventh digit.
PRICE_TOLERANCE = 1e-5
VOLUME_TOLERANCE = 0.01
RETURN_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Difference:
    """Rows and cells that differ from an older to a newer version.

    Attributes:
        added: rows only in the newer one.
        removed: rows only in the older one.
        changed: `date, tic, column, before, after` of each cell beyond its tolerance.
    """

    new_tickers: tuple[str, ...]
    lost_tickers: tuple[str, ...]
    added: pd.DataFrame
    removed: pd.DataFrame
    changed: pd.DataFrame

    @property
    def is_restatement(self) -> bool:
        """Whether anything that was said before is said otherwise now."""
        return bool(len(self.changed) or len(self.removed))

    def lines(self, most: int = 10) -> list[str]:
        """Return the difference for people, with the first cells of each kind."""
        found = []
        for what, tickers in (("new", self.new_tickers), ("lost", self.lost_tickers)):
            if tickers:
                found.append(f"{what} tickers: {', '.join(tickers)}")
        for what, rows in (("added", self.added), ("removed", self.removed)):
            if len(rows):
                days = f"{rows['date'].min()} … {rows['date'].max()}"
                found.append(f"{len(rows)} rows {what}: {days}, {rows['tic'].nunique()} tickers")
        if len(self.changed):
            found.append(f"{len(self.changed)} cells changed:")
            for _, cell in self.changed.head(most).iterrows():
                found.append(
                    f"  {cell['tic']} {cell['date']} {cell['column']}: "
                    f"{cell['before']:g} → {cell['after']:g}"
                )
            if len(self.changed) > most:
                found.append(f"  … and {len(self.changed) - most} more")
        return found or ["no difference"]


def difference(older: RawPrices, newer: RawPrices) -> Difference:
    """Compare two versions cell by cell; `adj_close` is left out where the actions are known."""
    keys = list(KEYS)
    renamed = newer.frame.rename(columns={c: f"{c}_new" for c in value_columns(newer.frame)})
    both = older.frame.merge(renamed, on=keys, how="outer", indicator=True)
    # A column that one of them lacks is compared with nothing: all its values are news.
    names = {*used_columns(older.frame), *used_columns(newer.frame)}
    columns = [c for c in VALUES if c in names]
    for name in columns:
        both = both.assign(**{c: np.nan for c in (name, f"{name}_new") if c not in both})
    common = both[both["_merge"] == "both"]
    cells = []
    for name in columns:
        before, after = common[name].to_numpy(float), common[f"{name}_new"].to_numpy(float)
        tolerance = VOLUME_TOLERANCE if name == "volume" else PRICE_TOLERANCE
        differs = ~np.isclose(before, after, rtol=tolerance, atol=0.0, equal_nan=True)
        rows = common.loc[differs, keys].assign(
            column=name, before=before[differs], after=after[differs]
        )
        cells.append(rows)
    changed = pd.concat(cells).sort_values(keys, kind="stable").reset_index(drop=True)
    old_tickers, new_tickers = set(older.frame["tic"]), set(newer.frame["tic"])
    return Difference(
        new_tickers=tuple(sorted(new_tickers - old_tickers)),
        lost_tickers=tuple(sorted(old_tickers - new_tickers)),
        added=both.loc[both["_merge"] == "right_only", keys],
        removed=both.loc[both["_merge"] == "left_only", keys],
        changed=changed,
    )


def returns_agree(older: RawPrices, newer: RawPrices) -> bool:
    """Tell whether the closes of the rows that both have move alike, whatever their level."""
    both = older.frame.merge(newer.frame, on=list(KEYS), suffixes=("", "_new"))
    before, after = (both[c] / both.groupby("tic")[c].shift() for c in ("close", "close_new"))
    gap = (before - after).abs()
    return bool((gap.dropna() <= RETURN_TOLERANCE).all())
