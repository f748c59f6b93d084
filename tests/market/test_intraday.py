"""Bars shorter than a session: the same sessions, windows and daily figures."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from podracer.envs.policies import ScheduledPolicy, equal_weight_monthly
from podracer.envs.rollout import rollout
from podracer.envs.settings import EnvSettings
from podracer.errors import MarketDataError
from podracer.market.features import warmup_bars
from podracer.market.findings import QualitySettings
from podracer.market.market import build_market, open_market
from podracer.market.quality import check
from podracer.market.raw import RawPrices
from podracer.market.sessions import bars_of, open_bars, session_ends, session_of_bars
from podracer.market.settings import FeatureSettings
from podracer.market.sources.file import load_file
from podracer.market.windows import Window, WindowSettings, resolve_windows

SETTINGS = FeatureSettings(
    asset=("reversal_1m", "volatility_60"), market=("log_return_1", "rsi_30")
)


def bars_frame(first="2022-06-01", last="2022-12-30", tickers=("A", "B", "C"), bar="15m", seed=0):
    """Generated bars in long form, stamped with their starts in UTC."""
    rng = np.random.default_rng(seed)
    starts = bars_of("XNYS", bar, np.datetime64(first), np.datetime64(last))
    frames = []
    for tic in tickers:
        moves = rng.uniform(0.0005, 0.004, len(starts)) * rng.choice([-1, 1], len(starts))
        close = np.round(50 * np.exp(np.cumsum(moves)), 4)
        volume = rng.integers(100, 900, len(starts)).astype(float)
        frames.append(pd.DataFrame({"date": starts, "tic": tic, "close": close, "volume": volume}))
    return pd.concat(frames).sort_values(["date", "tic"], kind="stable").reset_index(drop=True)


@pytest.fixture(scope="module")
def frame():
    return bars_frame()


@pytest.fixture(scope="module")
def market(frame):
    panel, report = check(RawPrices(frame, "bars", "XNYS", "15m"), QualitySettings())
    assert report.findings == ()
    return build_market(panel, SETTINGS)


def test_bars_are_the_calendars_and_a_half_day_has_fewer(market):
    days, counts = np.unique(market.dates_D, return_counts=True)
    bars = dict(zip(days.astype(str), counts.tolist(), strict=True))
    assert bars["2022-11-23"] == 26  # 9:30 to 16:00
    assert bars["2022-11-25"] == 14  # closes at 13:00
    assert "2022-11-24" not in bars
    starts = bars_of("XNYS", "15m", np.datetime64("2022-11-04"), np.datetime64("2022-11-07"))
    # The clocks went back on the 6th: 13:30 and then 14:30 UTC are half past nine.
    assert [str(s) for s in starts[[0, 26]]] == ["2022-11-04T13:30:00", "2022-11-07T14:30:00"]


def test_a_saved_market_keeps_its_bars(market, tmp_path):
    again = open_market(market.save(tmp_path / "m"))
    assert again.hash == market.hash
    assert np.array_equal(again.starts_D, market.starts_D)
    assert replace(market, starts_D=market.starts_D + 1) is not market


def test_session_features_are_those_of_daily_closes_and_known_from_the_close_on(frame, market):
    days = session_of_bars(frame["date"].to_numpy("datetime64[s]"), "XNYS", "15m")
    daily = (
        frame.assign(date=days.astype("datetime64[ns]"))
        .groupby(["date", "tic"])
        .last()
        .reset_index()
    )
    panel, _ = check(RawPrices(daily, "daily", "XNYS"), QualitySettings())
    expected = build_market(panel, SETTINGS)
    ends = np.flatnonzero(session_ends(market.dates_D))
    assert np.array_equal(market.asset_features_DAK[ends], expected.asset_features_DAK)
    noon = ends[100] + 10  # within the session after the hundredth
    assert np.array_equal(market.asset_features_DAK[noon], expected.asset_features_DAK[100])
    # Features of bars are those of bars.
    column = market.meta["market_features"].index("log_return_1:B")
    price = np.asarray(market.price_DA[:, 1])
    assert market.market_features_DF[noon, column] == pytest.approx(
        np.log(price[noon] / price[noon - 1]), abs=1e-7
    )


def test_windows_are_of_sessions_and_start_at_the_first_close():
    starts = bars_of("XNYS", "15m", np.datetime64("2022-01-03"), np.datetime64("2022-12-30"))
    dates = session_of_bars(starts, "XNYS", "15m")
    settings = WindowSettings(
        train="2022-01-03 .. 2022-04-29", selection="2022-04-30 .. 2022-08-31",
        lockbox="2022-09-01 .. 2022-12-30", embargo_sessions=20,
    )  # fmt: skip
    windows = resolve_windows(settings, dates, 0)
    train, selection = windows.train, windows.selection
    assert train.start == 25  # the last of the 26 bars of 3 January
    assert str(dates[train.stop - 1]) == "2022-04-29"
    sessions = np.unique(dates)
    spring = sessions[
        (sessions >= np.datetime64("2022-01-03")) & (sessions <= np.datetime64("2022-04-29"))
    ]
    assert train.num_returns == len(spring) - 1
    assert np.array_equal(train.return_dates(dates), spring[1:])
    # May has 21 sessions, 20 of them embargoed.
    assert str(dates[selection.start]) == "2022-05-31"
    assert dates[selection.start] != dates[selection.start + 1]


def test_the_warm_up_counts_sessions_and_bars():
    dates = np.repeat(np.arange("2022-01-01", "2022-01-11", dtype="datetime64[D]"), 5)
    from podracer.market.features import Feature

    slow = Feature("slow", 3, lambda p: p, clock="session")
    quick = Feature("quick", 12, lambda p: p)
    assert warmup_bars([slow], dates) == 19  # the last bar of the fourth session
    assert warmup_bars([quick, slow], dates) == 19
    assert warmup_bars([Feature("x", 30, lambda p: p), slow], dates) == 30
    assert warmup_bars([Feature("y", 10, lambda p: p, clock="session")], dates) == 50


def test_daily_returns_come_from_the_equity_at_the_end_of_each_day(market):
    ends = np.flatnonzero(session_ends(market.dates_D))
    start, stop = int(ends[20]), int(ends[30]) + 1
    window = Window("w", start, stop, 11)
    once = np.arange(len(market.dates_D)) == start
    hold = ScheduledPolicy(np.tile([1.0, 0.0, 0.0], (len(once), 1)), once)
    result = rollout(
        hold, market, window, EnvSettings(costs={"commission_bps": 0}, initial_cash=100_000_000)
    )
    price = np.asarray(market.price_DA[:, 0])
    # Bought at the next bar; then the price of each day's last bar against the day before.
    expected = price[ends[21:31]] / np.concatenate([[price[start + 1]], price[ends[21:30]]]) - 1
    assert result.returns_RE[:, 0] == pytest.approx(expected, abs=1e-5)
    assert np.array_equal(result.dates_R, market.dates_D[ends[21:31]])
    assert (result.turnover_RE[:, 0] > 0).tolist() == [True] + [False] * 9


def test_the_benchmark_trades_at_the_last_bar_of_a_month(market):
    window = Window("w", 25, len(market.dates_D), len(np.unique(market.dates_D)))
    result = rollout(equal_weight_monthly(market, 25), market, window, EnvSettings())
    traded = result.dates_R[result.turnover_RE[:, 0] > 0].astype(str).tolist()
    # Decided at the last bar of the month, filled at the first bar of the next session.
    assert traded == [
        "2022-06-02",
        "2022-07-01",
        "2022-08-01",
        "2022-09-01",
        "2022-10-03",
        "2022-11-01",
        "2022-12-01",
    ]


def test_a_bar_that_is_still_running_and_one_that_is_no_bar(frame, tmp_path):
    starts = frame["date"].to_numpy("datetime64[s]")
    now = pd.Timestamp("2022-12-30 20:50", tz="UTC").to_pydatetime()
    assert np.unique(open_bars(starts, "XNYS", "15m", now)).astype(str).tolist() == [
        "2022-12-30T20:45:00"
    ]
    wrong = frame.assign(date=frame["date"] + pd.Timedelta(minutes=5))
    with pytest.raises(
        MarketDataError,
        match="dates are not sessions of XNYS, the first row is A on 2022-06-01 13:35 UTC",
    ):
        check(RawPrices(wrong, "bars", "XNYS", "15m"), QualitySettings())
    path = tmp_path / "bars.csv"
    frame.assign(date=frame["date"].dt.tz_localize("UTC").dt.tz_convert("America/New_York")).to_csv(
        path, index=False
    )
    assert load_file(path, "XNYS", bar="15m").frame["date"].tolist() == frame["date"].tolist()


def test_exchanges_with_a_lunch_break_or_a_short_calendar():
    tokyo = bars_of("XTKS", "1d", np.datetime64("2022-01-04"), np.datetime64("2022-01-07"))
    assert len(tokyo) == 4
    hours = bars_of("XHKG", "1h", np.datetime64("2022-03-01"), np.datetime64("2022-03-01"))
    # Hong Kong: 9:30 to 12:00 and 13:00 to 16:00, eight hours ahead of UTC.
    assert [str(h)[11:16] for h in hours] == ["01:30", "02:30", "03:30", "05:00", "06:00", "07:00"]
