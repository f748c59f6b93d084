"""Exchange sessions: which days a market was open."""

from functools import cache

import exchange_calendars
import numpy as np
import pandas as pd

# The library's default start is "20 years ago", which would move the failure date with the clock.
FIRST_SESSION = "1985-01-02"


@cache
def sessions_of(exchange: str) -> pd.DatetimeIndex:
    """Return every session of an exchange since 1985 as time-zone-free dates."""
    return exchange_calendars.get_calendar(exchange, start=FIRST_SESSION).sessions


def closed_days(dates_D: np.ndarray, exchange: str) -> np.ndarray:
    """Return those of the dates on which the exchange held no session."""
    return dates_D[~np.isin(dates_D, sessions_of(exchange).to_numpy(dates_D.dtype))]


def missing_sessions(dates_D: np.ndarray, exchange: str) -> np.ndarray:
    """Return the sessions between the first and the last date that are not among the dates."""
    sessions = sessions_of(exchange).to_numpy(dates_D.dtype)
    spanned = sessions[(sessions >= dates_D[0]) & (sessions <= dates_D[-1])]
    return spanned[~np.isin(spanned, dates_D)]


def is_last_of_month(dates_D: np.ndarray) -> np.ndarray:
    """Mark the last given session of each month; the final date counts only if its month is over.

    The exchange publishes its calendar in advance, so this is known at the session's close.
    """
    month_D = dates_D.astype("datetime64[M]")
    last_D = np.zeros(len(dates_D), dtype=bool)
    last_D[:-1] = month_D[1:] != month_D[:-1]
    return last_D
