"""The real yfinance against a stand-in of Yahoo, in every way that it fails."""

from dataclasses import replace
from datetime import UTC, date, datetime

import numpy as np
import pandas as pd
import pytest

from podracer.errors import MarketDataError, NotFinalError
from podracer.market.adjustment import adjusted
from podracer.market.findings import QualitySettings
from podracer.market.quality import check
from podracer.market.sources.yahoo import Request, YahooSettings, update
from tests.market.prices import clean_frame
from tests.market.yahoo_standin import StandIn

FRAME = clean_frame(60, first="2024-01-02")
LAST = FRAME["date"].max()
AFTER = datetime(2024, 3, 28, 0, 0, tzinfo=UTC)  # the evening of the last session, 27 March
FAST = YahooSettings(
    attempts=3, backoff_seconds=0.01, request_seconds=1, ticker_seconds=20, total_seconds=30
)
REQUEST = Request(("A", "B", "C"), date(2024, 1, 2), "XNYS", "1d")


def series(frame=FRAME):
    return {tic: rows.drop(columns="tic") for tic, rows in frame.groupby("tic")}


@pytest.fixture
def yahoo():
    with StandIn(series()) as stand_in:
        yield stand_in


def ask(yahoo, previous=None, settings=FAST, request=REQUEST, now=AFTER):
    # A new cookie jar and no remembered answers: each call is a process of its own.
    from yfinance.data import YfData

    YfData().cache_get.cache_clear()
    return update(previous, request, settings, now, yahoo.session())


def test_prices_arrive_as_they_are(yahoo):
    prices, changes = ask(yahoo)
    columns = ["date", "tic", "open", "high", "low", "close", "volume", "dividend", "split"]
    pd.testing.assert_frame_equal(
        prices.frame[columns], FRAME[columns], check_dtype=False, check_exact=True
    )
    assert changes is None
    assert (prices.requested, prices.failures) == (("A", "B", "C"), ())
    _, report = check(prices, QualitySettings())
    assert report.findings == ()


@pytest.mark.parametrize(
    ("mode", "kind", "requests"),
    [
        ("ratelimit", "rate limited", None),
        ("empty", "no data", 3),
        ("truncated", "source down", 3),
        ("cut", "source down", 3),
        ("html", "source down", 3),
        ("down", "source down", None),
        ("error500", "source down", 6),
        ("slow", "source down", 3),
    ],
)
def test_a_ticker_that_does_not_arrive_is_named_with_the_reason(yahoo, mode, kind, requests):
    yahoo.fail("B", mode)
    settings = FAST.model_copy(update={"min_universe": 0.6})
    prices, _ = ask(yahoo, settings=settings)
    (failure,) = prices.failures
    assert (failure.tic, failure.kind) == ("B", kind)
    assert prices.tickers == ("A", "C")
    if requests is not None:
        assert len(yahoo.charts("B")) == requests
    with pytest.raises(MarketDataError, match=f"2 of 3 tickers arrived.*{kind}: B"):
        ask(yahoo)


@pytest.mark.parametrize(
    "mode", ["ratelimit", "truncated", "cut", "html", "error500", "empty", "slow"]
)
def test_a_fault_that_passes_costs_one_more_request(yahoo, mode):
    yahoo.fail("B", mode, times=1)
    prices, _ = ask(yahoo)
    assert prices.failures == ()
    assert len(yahoo.charts("B")) == 2


def test_a_known_symbol_whose_history_is_gone_is_delisted(yahoo):
    yahoo.data["GONE"] = series()["A"]
    ask(yahoo, request=Request(("GONE",), date(2024, 1, 2), "XNYS", "1d"))  # its time zone is known
    yahoo.fail("GONE", "delisted")
    with pytest.raises(MarketDataError, match="delisted: GONE"):
        ask(yahoo, request=Request(("GONE",), date(2024, 1, 2), "XNYS", "1d"))


def test_a_symbol_that_yahoo_never_knew_is_unknown_and_asked_for_once(yahoo):
    with pytest.raises(MarketDataError, match="unknown symbol: NEVER"):
        ask(yahoo, request=Request(("A", "NEVER"), date(2024, 1, 2), "XNYS", "1d"))
    assert yahoo.charts("NEVER") == []


def test_a_ticker_that_dies_between_two_looks_keeps_its_history(yahoo):
    prices, _ = ask(yahoo)
    later = longer(yahoo)
    yahoo.fail("B", "delisted")
    settings = FAST.model_copy(update={"min_universe": 0.6})
    for restated in (False, True):
        if restated:
            yahoo.data["A"][["open", "high", "low", "close"]] /= 2
        updated, changes = ask(yahoo, prices, settings, now=later)
        assert [(f.tic, f.kind) for f in updated.failures] == [("B", "delisted")]
        assert (changes is not None) is restated
        assert (updated.frame["tic"] == "B").sum() == 60
        panel, report = check(updated, QualitySettings(), now=later)
        assert panel.tradable_DA.sum(0).tolist() == [61, 60, 61]
        assert ("early_end", "B") in {(f.rule, f.tic) for f in report.findings}


def test_a_refused_crumb_does_not_matter(yahoo):
    yahoo.fail("*", "crumb429", times=0)
    assert ask(yahoo)[0].failures == ()


def test_if_nothing_arrives_the_source_is_down_not_three_companies(yahoo):
    yahoo.fail("*", "empty")
    with pytest.raises(MarketDataError, match=r"0 of 3 tickers arrived.*source down: A, B, C"):
        ask(yahoo)


def test_a_deadline_for_all_ends_a_slow_source(yahoo):
    yahoo.slow_seconds = 5
    yahoo.fail("*", "slow")
    settings = FAST.model_copy(update={"total_seconds": 0.5, "request_seconds": 10})
    with pytest.raises(MarketDataError, match=r"no answer within data\.yahoo\.total_seconds 0\.5"):
        ask(yahoo, settings=settings)


def test_a_share_class_is_asked_for_in_yahoos_spelling():
    with StandIn({"BRK-B": series()["A"]}) as yahoo:
        prices, _ = ask(yahoo, request=Request(("BRK.B",), date(2024, 1, 2), "XNYS", "1d"))
        assert prices.tickers == ("BRK.B",)


def test_nothing_is_asked_until_a_session_has_closed(yahoo):
    prices, _ = ask(yahoo)
    yahoo.log.clear()
    again, changes = ask(yahoo, prices, now=datetime(2024, 3, 28, 20, 15, tzinfo=UTC))
    assert again is prices
    assert changes is None
    assert yahoo.log == []


def longer(yahoo, frame=None):
    frame = clean_frame(61, first="2024-01-02") if frame is None else frame
    known = pd.concat([FRAME, frame[frame["date"] > LAST]])
    yahoo.data = series(known.sort_values(["date", "tic"]))
    return datetime(2024, 3, 28, 23, 0, tzinfo=UTC)


def test_a_new_session_is_appended_and_old_rows_stay_digit_by_digit(yahoo):
    prices, _ = ask(yahoo)
    later = longer(yahoo)
    for tic, rows in yahoo.data.items():
        noisy = rows.copy()
        noisy["close"] *= 1 + 2e-7  # another seventh digit, as Yahoo does
        yahoo.data[tic] = noisy
    yahoo.log.clear()
    updated, changes = ask(yahoo, prices, now=later)
    assert changes is None
    assert len(updated.frame) == len(FRAME) + 3
    pd.testing.assert_frame_equal(updated.frame.iloc[: len(FRAME)], prices.frame)
    assert len(yahoo.charts()) == 3


def test_rows_that_come_late_are_taken_in(yahoo):
    yahoo.fail("B", "empty")
    prices, _ = ask(yahoo, settings=FAST.model_copy(update={"min_universe": 0.6}))
    assert prices.tickers == ("A", "C")
    yahoo.heal()
    updated, changes = ask(yahoo, prices, now=longer(yahoo))
    assert changes is None
    assert updated.frame["tic"].value_counts().to_dict() == {"A": 61, "B": 61, "C": 61}
    # A hole that Yahoo fills later is filled.
    hole = updated.frame.drop(index=updated.frame.index[updated.frame["tic"] == "B"][50])
    again, _ = ask(yahoo, replace(prices, frame=hole[hole["date"] <= LAST]), now=longer(yahoo))
    assert (again.frame["tic"] == "B").sum() == 61


def test_a_ticker_that_is_late_by_two_sessions_is_not_delisted(yahoo):
    prices, _ = ask(yahoo)
    late = prices.frame.drop(index=prices.frame.index[prices.frame["tic"] == "B"][-2:])
    with pytest.raises(NotFinalError, match="B has no price yet"):
        check(replace(prices, frame=late), QualitySettings(), now=AFTER)


def test_bars_within_a_day_are_asked_for_as_far_back_as_yahoo_keeps_them():
    request = Request(("A",), None, "XNYS", "15m")
    assert request.first_day(datetime(2024, 3, 28, tzinfo=UTC)) == date(2024, 1, 29)
    assert request.key != Request(("A",), date(2024, 1, 29), "XNYS", "15m").key


def test_a_restated_history_is_a_new_version_that_says_what_changed(yahoo):
    prices, _ = ask(yahoo)
    later = longer(yahoo)
    halved = yahoo.data["B"].copy()
    halved[["open", "high", "low", "close"]] /= 2  # a later 2:1 split
    yahoo.data["B"] = halved
    updated, changes = ask(yahoo, prices, now=later)
    assert set(changes.changed["tic"]) == {"B"}
    assert set(changes.changed["column"]) == {"open", "high", "low", "close"}
    assert updated.content_hash != prices.content_hash
    assert any("cells changed" in line for line in changes.lines())


def test_yahoos_own_adjusted_close_may_drift_without_a_new_version(yahoo):
    yahoo.fail("*", "drift")
    one, _ = ask(yahoo)
    other, _ = ask(yahoo)
    assert not np.array_equal(one.frame["adj_close"], other.frame["adj_close"])
    assert one.content_hash == other.content_hash


def findings(yahoo, **levels):
    prices, _ = ask(yahoo)
    panel, report = check(prices, QualitySettings(levels=levels), now=AFTER)
    return panel, {(f.rule, f.tic) for f in report.findings}


def test_bad_rows_pass_yfinance_and_meet_the_gate(yahoo):
    for mode, expected in (
        ("negzero", {("bad_price", "B")}),
        ("unit100", {("unit_error", "B")}),
        ("badsplit", {("unexplained_split", "B")}),
        ("hole", {("missing", "B")}),
    ):
        yahoo.heal()
        yahoo.fail("B", mode)
        panel, found = findings(yahoo)
        assert expected <= found, mode
        assert {tic for _, tic in found} == {"B"}, mode
        assert panel.tradable_DA[:, [0, 2]].all(), mode


def test_a_last_row_sent_twice_is_one_row(yahoo):
    yahoo.fail("B", "lastdup")
    panel, found = findings(yahoo)
    assert found == set()
    assert len(panel.dates_D) == 60


def test_a_last_bar_without_prices_is_not_final(yahoo):
    yahoo.fail("B", "nullrow")
    prices, _ = ask(yahoo)
    with pytest.raises(NotFinalError, match="data not final for 2024-03-27: B has no"):
        check(prices, QualitySettings(), now=AFTER)


def test_our_adjustment_equals_yahoos(yahoo):
    frame = FRAME.copy()
    paid = frame["tic"].eq("A") & frame["date"].isin(frame["date"].unique()[[20, 40]])
    frame.loc[paid, "dividend"] = 0.5
    rows = frame[frame["tic"] == "A"]
    close, dividend = rows["close"].to_numpy(), rows["dividend"].to_numpy()
    # Yahoo's rule, written as a loop: each ex-date scales what came before by 1 - D / last close.
    factor = np.ones(60)
    for t in range(1, 60):
        factor[:t] *= 1 - dividend[t] / close[t - 1]
    yahoo.data = series(frame)
    prices, _ = ask(yahoo)
    panel, _ = check(prices, QualitySettings(), now=AFTER)
    assert adjusted(panel).fields["close"][:, 0] == pytest.approx(close * factor, rel=1e-12)
    assert adjusted(panel).fields["open"][:, 0] == pytest.approx(
        rows["open"].to_numpy() * factor, rel=1e-12
    )
