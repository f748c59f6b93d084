"""Prices as a source gave them, before anything is judged, masked or adjusted."""

import hashlib
from collections.abc import Container, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import numpy as np
import pandas as pd

from podracer.errors import MarketDataError

HINDSIGHT = "a universe that was chosen with hindsight makes every long-only rule look good"
KEYS = ("date", "tic")
PRICES = ("open", "high", "low", "close")
VALUES = (*PRICES, "adj_close", "volume", "dividend", "split")
FailureKind = Literal["rate limited", "delisted", "no data", "source down", "unknown symbol"]


@dataclass(frozen=True)
class Failure:
    """A ticker that a source was asked for and did not deliver."""

    tic: str
    kind: FailureKind
    detail: str


@dataclass(frozen=True)
class RawPrices:
    """A long frame of prices and corporate actions, one row a (date, tic), sorted by both.

    Attributes:
        frame: `date` (datetime64, time-zone free: the exchange's day, or UTC for bars within a
            day), `tic`, `close`, and any other of `VALUES`. `dividend` is dollars a share on the
            ex-date, `split` the number of new shares for an old one; 0 where there was none.
        name: what to call the data in messages, reports and tags.
        exchange: code of the exchange's calendar, e.g. XNYS.
        bar: length of a bar: `1d`, or minutes as `15m`.
        index: level of a price index by date, for the report only.
        requested: the universe that was asked for; all that is in the frame if empty.
        failures: requested tickers that the source did not deliver, and why.
        asof: when a live source was asked.
        notes: what a reader of results on these prices must know.
        defects: what is known to be wrong with them.
        is_adjusted: the close is already adjusted for splits or dividends.
    """

    frame: pd.DataFrame
    name: str
    exchange: str
    bar: str = "1d"
    index: pd.Series | None = None
    requested: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()
    asof: datetime | None = None
    notes: tuple[str, ...] = ()
    defects: tuple[str, ...] = ()
    is_adjusted: bool = False

    @property
    def tickers(self) -> tuple[str, ...]:
        """The universe received, in the order it was asked for."""
        present = set(self.frame["tic"].unique())
        wanted = self.requested or sorted(present)
        return tuple(t for t in wanted if t in present)

    @property
    def content_hash(self) -> str:
        """The sha256 of all that the prices say, independent of row order, file format and machine.

        Yahoo re-bases its adjusted close after every dividend, so where the actions themselves
        are known `adj_close` is left out.
        """
        frame = self.frame.sort_values(list(KEYS), kind="stable")
        digest = hashlib.sha256()
        digest.update("\n".join([self.exchange, self.bar, *self.tickers]).encode())
        digest.update(frame["date"].to_numpy("datetime64[s]").astype("<i8").tobytes())
        codes, names = pd.factorize(frame["tic"], sort=True)
        digest.update("\n".join(names).encode())
        digest.update(codes.astype("<i4").tobytes())
        for name in used_columns(frame):
            digest.update(name.encode())
            digest.update(frame[name].to_numpy("<f8").tobytes())
        if self.index is not None:
            digest.update(b"index")
            digest.update(self.index.index.to_numpy("datetime64[s]").astype("<i8").tobytes())
            digest.update(self.index.to_numpy("<f8").tobytes())
        return digest.hexdigest()


def knows_actions(columns: Container[str]) -> bool:
    """Tell whether prices can be adjusted from actions: both kinds are given, or there is no other way."""
    return ("dividend" in columns and "split" in columns) or "adj_close" not in columns


def value_columns(frame: pd.DataFrame) -> list[str]:
    """Return those of `VALUES` that a frame has, in their usual order."""
    return [c for c in VALUES if c in frame.columns]


def used_columns(frame: pd.DataFrame) -> list[str]:
    """Return the value columns that say something: no adjusted close where the actions are known."""
    drops = {"adj_close"} if knows_actions(frame.columns) else set()
    return [c for c in value_columns(frame) if c not in drops]


def choose_tickers(
    frame: pd.DataFrame, tickers: Sequence[str] | None, source: str
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Keep the rows of the wanted tickers; `BRK.B` also finds `BRK-B`, and the data's spelling stays.

    Raises:
        MarketDataError: if a ticker is not in the data, or two spellings of one asset are.
    """
    spellings: dict[str, str] = {}
    for tic in sorted(frame["tic"].unique()):
        other = spellings.setdefault(yahoo_symbol(tic), tic)
        if other != tic:
            raise MarketDataError(
                f"{source}: {other!r} and {tic!r} are two spellings of one share class. "
                f"Rename one, or drop its rows."
            )
    if tickers is None:
        return frame, tuple(sorted(spellings.values()))
    if unknown := [t for t in tickers if yahoo_symbol(t) not in spellings]:
        raise MarketDataError(
            f"{source}: the data has no ticker {', '.join(map(repr, unknown))}. "
            f"It has {', '.join(sorted(spellings.values()))}: correct data.tickers in params.yaml."
        )
    wanted = tuple(spellings[yahoo_symbol(t)] for t in tickers)
    return frame[frame["tic"].isin(wanted)], wanted


def yahoo_symbol(ticker: str) -> str:
    """Return how Yahoo spells a ticker: a share class after a hyphen, an exchange after a dot.

    `BRK.B` becomes `BRK-B`; `VOD.L` (London), `7203.T` (Tokyo) and `0005.HK` stay: no exchange's
    suffix is one of the letters A to E.
    """
    root, dot, suffix = ticker.rpartition(".")
    is_class = bool(dot) and root.isalpha() and suffix in tuple("ABCDE")
    return f"{root}-{suffix}" if is_class else ticker


def empty_as_missing(values: np.ndarray) -> np.ndarray:
    """Return which text cells hold nothing: blank, or one of the usual words for no value."""
    return np.isin(
        np.char.lower(np.char.strip(values.astype(str))), ("", "nan", "na", "null", "none")
    )
