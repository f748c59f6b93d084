"""Daily or intraday prices from Yahoo Finance, by yfinance, one ticker at a time.

`yfinance.download` is not used: it never raises, and answers a failed ticker with empty columns.
"""

import atexit
import logging
import shutil
import tempfile
import warnings
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import cache
from json import JSONDecodeError
from typing import Any, NoReturn

import numpy as np
import pandas as pd
from pydantic import Field
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    stop_after_delay,
    wait_random_exponential,
)

from podracer.errors import MarketDataError
from podracer.market.diff import Difference, difference, returns_agree
from podracer.market.raw import HINDSIGHT, KEYS, Failure, FailureKind, RawPrices, yahoo_symbol
from podracer.market.sessions import DAILY, last_closed_session, session_of_bars
from podracer.settings import Settings, canonical_hash

logger = logging.getLogger(__name__)

COLUMNS = {
    "Open": "open",
    "High": "high",
    "Low": "low",
    "Close": "close",
    "Adj Close": "adj_close",
    "Volume": "volume",
    "Dividends": "dividend",
    "Stock Splits": "split",
}
# How far back Yahoo keeps bars within a day, and how many days it gives at once.
KEPT_DAYS = {"1m": 30, "2m": 60, "5m": 60, "15m": 60, "30m": 60, "90m": 60, "60m": 730, "1h": 730}
DAYS_A_REQUEST = {"1m": 8}
FINAL = ("unknown symbol", "delisted")


class YahooSettings(Settings):
    """How patiently to ask, and when to go on without an answer."""

    attempts: int = Field(4, ge=1, le=20, description="Times a ticker is asked for.")
    backoff_seconds: float = Field(
        2.0, gt=0, description="Mean wait before the second try; it doubles, with jitter."
    )
    request_seconds: float = Field(10.0, gt=0, description="Longest wait for one answer.")
    ticker_seconds: float = Field(120.0, gt=0, description="Longest time for one ticker.")
    total_seconds: float = Field(900.0, gt=0, description="Longest time for all of them.")
    threads: int = Field(4, ge=1, le=16, description="Tickers asked for at once.")
    min_universe: float = Field(
        1.0, gt=0, le=1, description="Share of the tickers that must arrive; else nothing is kept."
    )
    close_delay_minutes: int = Field(
        30, ge=0, description="How long after the close a session counts as published."
    )
    overlap_sessions: int = Field(
        30,
        ge=1,
        description="Sessions asked for again at an update, to see whether history changed.",
    )


@dataclass(frozen=True)
class Request:
    """What is wanted from Yahoo.

    Attributes:
        tickers: the universe, in our spelling.
        start: first day; for bars within a day all that Yahoo keeps if None.
        exchange: code of the calendar.
        bar: `1d`, or the length of a bar within a day.
    """

    tickers: tuple[str, ...]
    start: date | None
    exchange: str
    bar: str

    def first_day(self, now: datetime) -> date:
        """Return the first day to ask for."""
        return self.start or now.date() - timedelta(days=KEPT_DAYS[self.bar] - 1)

    @property
    def key(self) -> str:
        """What names the request in the manifests of its snapshots."""
        start = None if self.start is None else self.start.isoformat()
        return canonical_hash([self.tickers, start, self.exchange, self.bar])


class _NotDeliveredError(Exception):
    def __init__(self, kind: FailureKind, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


def update(
    previous: RawPrices | None,
    request: Request,
    settings: YahooSettings,
    now: datetime,
    session: Any = None,
) -> tuple[RawPrices, Difference | None]:
    """Return the prices up to the last closed session, and what they say otherwise than before.

    Nothing is asked if no session has closed since. Otherwise the last sessions are asked for again
    and new rows are appended if the old ones agree; if they do not, all history is fetched.

    Args:
        previous: the last snapshot of the same request.
        request: what is wanted.
        settings: patience.
        now: the time, time-zone aware.
        session: a session for yfinance; its own if None.

    Raises:
        MarketDataError: if fewer tickers than `min_universe` arrive.
    """
    known = previous.tickers if previous is not None else ()
    delay = timedelta(minutes=settings.close_delay_minutes)
    last = last_closed_session(request.exchange, now - delay)
    if previous is not None:
        days = session_of_bars(
            np.unique(previous.frame["date"].to_numpy("datetime64[s]")),
            request.exchange,
            request.bar,
        )
        if days[-1] >= last:
            return previous, None
        since = np.unique(days)[-settings.overlap_sessions :][0]
        recent = _fetch(request, known, since, last, settings, now, session)
        if _continues(previous, recent):
            return _appended(previous, recent), None
        logger.warning("history was restated: fetching all of it")
    whole = _fetch(
        request, known, np.datetime64(request.first_day(now)), last, settings, now, session
    )
    if previous is None:
        return whole, None
    changes = difference(_tail(previous, whole), whole)
    if changes.is_restatement:
        # A ticker that has died since keeps the history that we have of it.
        lost = _of(previous, tuple(f.tic for f in whole.failures)).frame
        return replace(whole, frame=_sorted([whole.frame, lost])), changes
    return _appended(previous, whole), None


def _continues(previous: RawPrices, recent: RawPrices) -> bool:
    tail = _tail(previous, recent)
    changes = difference(tail, recent)
    return not changes.is_restatement and not changes.new_tickers and returns_agree(tail, recent)


def _appended(previous: RawPrices, recent: RawPrices) -> RawPrices:
    """Keep what was said before, digit by digit, and add every row that is new, late ones too."""
    both = recent.frame.merge(previous.frame[list(KEYS)], how="left", on=list(KEYS), indicator=True)
    new = both[both["_merge"] == "left_only"].drop(columns="_merge")
    return replace(recent, frame=_sorted([previous.frame, new]))


def _tail(previous: RawPrices, recent: RawPrices) -> RawPrices:
    """Return what was said before about the tickers and days of a newer answer."""
    held = _of(previous, recent.tickers)
    return replace(held, frame=held.frame[held.frame["date"] >= recent.frame["date"].min()])


def _of(prices: RawPrices, tickers: tuple[str, ...]) -> RawPrices:
    return replace(prices, frame=prices.frame[prices.frame["tic"].isin(tickers)])


def _sorted(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    together = pd.concat([f for f in frames if len(f)], ignore_index=True)
    return together.sort_values(list(KEYS), kind="stable").reset_index(drop=True)


def _fetch(
    request: Request,
    known: Sequence[str],
    first: np.datetime64,
    last: np.datetime64,
    settings: YahooSettings,
    now: datetime,
    session: Any,
) -> RawPrices:
    _yfinance()
    executor = ThreadPoolExecutor(settings.threads)
    span = first.astype(date), last.astype(date)
    futures: dict[str, Future[pd.DataFrame]] = {
        tic: executor.submit(_patiently, tic, *span, request.bar, settings, session)
        for tic in request.tickers
    }
    wait(futures.values(), timeout=settings.total_seconds)
    executor.shutdown(wait=False, cancel_futures=True)
    frames, failures = [], []
    for tic, future in futures.items():
        if not future.done() or future.cancelled():
            detail = f"no answer within data.yahoo.total_seconds {settings.total_seconds:g}"
            failures.append(Failure(tic, "source down", detail))
        elif isinstance(error := future.exception(), _NotDeliveredError):
            # A symbol that Yahoo once knew and no longer knows has left the exchange.
            is_gone = error.kind == "unknown symbol" and tic in known
            failures.append(Failure(tic, "delisted" if is_gone else error.kind, str(error)))
        else:
            frames.append(future.result())
    _require_enough(request.tickers, failures, settings)
    return RawPrices(
        _sorted(frames),
        "yahoo",
        request.exchange,
        request.bar,
        requested=request.tickers,
        failures=tuple(failures),
        asof=now,
        notes=(HINDSIGHT,),
    )


def _require_enough(
    tickers: Sequence[str], failures: list[Failure], settings: YahooSettings
) -> None:
    received = len(tickers) - len(failures)
    if received and received / len(tickers) >= settings.min_universe:
        return
    by_kind: dict[str, list[str]] = {}
    for failure in failures:
        by_kind.setdefault(failure.kind, []).append(failure.tic)
    if not received and "rate limited" not in by_kind and len(tickers) > 1:
        by_kind = {"source down": [f.tic for f in failures]}
    told = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in by_kind.items())
    raise MarketDataError(
        f"yahoo: {received} of {len(tickers)} tickers arrived, data.yahoo.min_universe asks for "
        f"{settings.min_universe:.0%} ({told}; {failures[0].detail}). "
        f"Nothing was changed. Try again later, drop the tickers, or lower min_universe."
    )


def _patiently(
    tic: str, first: date, last: date, bar: str, settings: YahooSettings, session: Any
) -> pd.DataFrame:
    retrying = Retrying(
        retry=retry_if_exception(
            lambda e: isinstance(e, _NotDeliveredError) and e.kind not in FINAL
        ),
        stop=stop_after_attempt(settings.attempts) | stop_after_delay(settings.ticker_seconds),
        wait=wait_random_exponential(multiplier=settings.backoff_seconds, max=120),
        before_sleep=_forget_answers,
        reraise=True,
    )
    parts = [
        retrying(_ask, tic, part_first, part_last, bar, settings.request_seconds, session)
        for part_first, part_last in _requests(first, last, bar)
    ]
    return pd.concat(parts, ignore_index=True)


def _requests(first: date, last: date, bar: str) -> list[tuple[date, date]]:
    """Cut a range into what Yahoo gives at once."""
    days = DAYS_A_REQUEST.get(bar)
    if days is None:
        return [(first, last)]
    starts = pd.date_range(first, last, freq=f"{days}D")
    return [(s.date(), min(last, (s + timedelta(days=days - 1)).date())) for s in starts]


def _ask(
    tic: str, first: date, last: date, bar: str, request_seconds: float, session: Any
) -> pd.DataFrame:
    yf = _yfinance()
    try:
        answer = yf.Ticker(yahoo_symbol(tic), session=session).history(
            start=first.isoformat(),
            end=(last + timedelta(days=1)).isoformat(),
            interval=bar,
            auto_adjust=False,
            actions=True,
            repair=False,
            timeout=request_seconds,
        )
    except Exception as error:  # yfinance passes on whatever its HTTP client and parser raise
        _classify(tic, error)
    if answer.empty:
        raise _NotDeliveredError("no data", f"{tic}: an empty answer for {first} … {last}")
    dates = answer.index
    if bar == DAILY:
        dates = dates.tz_localize(None).normalize()
    else:
        dates = dates.tz_convert("UTC").tz_localize(None)
    columns = {
        ours: answer[theirs].to_numpy(float) for theirs, ours in COLUMNS.items() if theirs in answer
    }
    return pd.DataFrame({"date": dates.to_numpy("datetime64[ns]"), "tic": tic} | columns)


def _classify(tic: str, error: Exception) -> NoReturn:
    from yfinance import exceptions

    status = getattr(getattr(error, "response", None), "status_code", None)
    detail = f"{tic}: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
    kind: FailureKind = "source down"
    if isinstance(error, exceptions.YFRateLimitError):
        kind = "rate limited"
    elif isinstance(error, exceptions.YFTzMissingError) or status == 404:
        kind = "unknown symbol"
    elif isinstance(error, exceptions.YFPricesMissingError):
        kind = "delisted" if "No data found" in str(error) else "no data"
    elif isinstance(error, JSONDecodeError):
        detail = f"{tic}: the answer is not JSON"
    raise _NotDeliveredError(kind, detail) from error


def _forget_answers(_state: RetryCallState) -> None:
    """Clear yfinance's memory of answers: it would give a bad one again without asking."""
    from yfinance.data import YfData

    YfData().cache_get.cache_clear()


@cache
def _yfinance() -> Any:
    """Import yfinance once: errors are raised, and its caches belong to this process alone."""
    import yfinance

    # Two processes that share its SQLite cache of time zones lock each other out.
    folder = tempfile.mkdtemp(prefix="podracer-yfinance-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    yfinance.set_tz_cache_location(folder)
    yfinance.config.debug.hide_exceptions = False
    logging.getLogger("yfinance").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", module="yfinance")
    return yfinance
