"""The gate: each rule catches what it is meant to catch, and a clean panel raises nothing."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podracer.errors import MarketDataError, NotFinalError
from podracer.market import splits
from podracer.market.adjustment import adjusted
from podracer.market.findings import LEVELS, QualitySettings
from podracer.market.quality import check, load_quality
from podracer.market.raw import RawPrices
from podracer.market.sources.bundled import datasets, load_bundled
from tests.market.prices import DATES, cell, clean_frame, raw

DATA = Path(__file__).parents[1] / "data"
CLEAN = clean_frame()
PRICES = ["open", "high", "low", "close"]


def gate(frame, now=None, facts=None, **levels):
    panel, report = check(raw(frame, **facts or {}), QualitySettings(levels=levels), now)
    return panel, report, {(f.rule, f.tic) for f in report.findings}


def test_a_clean_panel_raises_nothing_and_comes_out_as_it_went_in():
    panel, report, found = gate(CLEAN)
    assert found == set()
    assert panel.tickers == ("A", "B", "C")
    assert panel.tradable_DA.all()
    assert (report.rows_in, report.rows_used) == (360, 360)
    wide = CLEAN.pivot(index="date", columns="tic", values="close")
    assert np.array_equal(panel.fields["close"], wide.to_numpy())
    assert load_quality(report.to_json()) == report


def bad_price(frame, row, i, rng):
    column = rng.choice(PRICES)
    frame.loc[row, column] = rng.choice([0.0, -1.0, np.nan, np.inf])


def inconsistent_bar(frame, row, i, rng):
    if rng.random() < 0.5:
        frame.loc[row, "high"] = frame.loc[row, ["open", "close"]].max() * 0.999
    else:
        frame.loc[row, "low"] = frame.loc[row, ["open", "close"]].min() * 1.001


def unit_error(frame, row, i, rng):
    frame.loc[row, PRICES] *= rng.choice([100.0, 0.01, 10.0])


def bad_volume(frame, row, i, rng):
    frame.loc[row, "volume"] = rng.choice([-1.0, np.nan])


def zero_volume(frame, row, i, rng):
    frame.loc[row, "volume"] = 0.0


def missing(frame, row, i, rng):
    if rng.random() < 0.5:
        frame.loc[row, [*PRICES, "volume"]] = np.nan
    else:
        frame.drop(index=row, inplace=True)


def unexplained_split(frame, row, i, rng):
    ratio = rng.choice([2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 20.0, 1.5, 0.5, 0.25])
    tic = frame.loc[row, "tic"]
    before = (frame["tic"] == tic) & (frame["date"] < frame.loc[row, "date"])
    last = frame.loc[before, "close"].iloc[-1]
    # The split happens exactly at the open, so that its size is known.
    frame.loc[before, PRICES] *= ratio * frame.loc[row, "open"] / last


def announced_split(frame, row, i, rng):
    unexplained_split(frame, row, i, rng)
    tic = frame.loc[row, "tic"]
    before = (frame["tic"] == tic) & (frame["date"] < frame.loc[row, "date"])
    frame.loc[row, "split"] = frame.loc[before, "close"].iloc[-1] / frame.loc[row, "open"]


def large_move(frame, row, i, rng):
    factor = rng.choice([0.62, 1.9])
    tic = frame.loc[row, "tic"]
    frame.loc[(frame["tic"] == tic) & (frame["date"] >= frame.loc[row, "date"]), PRICES] *= factor


def extreme_move(frame, row, i, rng):
    factor = rng.choice([5.5, 17.0, 0.07])
    tic = frame.loc[row, "tic"]
    frame.loc[(frame["tic"] == tic) & (frame["date"] >= frame.loc[row, "date"]), PRICES] *= factor


def bad_action(frame, row, i, rng):
    column, value = [
        ("dividend", -1.0),
        ("dividend", 1000.0),
        ("dividend", np.inf),
        ("split", -2.0),
    ][rng.integers(4)]
    frame.loc[row, column] = value


def stale(frame, row, i, rng):
    tic = frame.loc[row, "tic"]
    rows = frame.index[frame["tic"] == tic][i : i + 5]
    close = frame.loc[row, "close"]
    frame.loc[rows, "close"] = close
    frame.loc[rows, "high"] = frame.loc[rows, "high"].clip(lower=close)
    frame.loc[rows, "low"] = frame.loc[rows, "low"].clip(upper=close)


def flat_bar(frame, row, i, rng):
    frame.loc[row, PRICES] = frame.loc[row, "close"]


def falling_factor(frame, row, i, rng):
    frame["adj_close"] = frame["close"]
    frame.drop(columns=["dividend", "split"], inplace=True)
    tic = frame.loc[row, "tic"]
    before = (frame["tic"] == tic) & (frame["date"] < frame.loc[row, "date"])
    frame.loc[before, "adj_close"] *= 1.02


def late_start(frame, row, i, rng):
    tic = frame.loc[row, "tic"]
    frame.drop(index=frame.index[frame["tic"] == tic][:i], inplace=True)


def early_end(frame, row, i, rng):
    tic = frame.loc[row, "tic"]
    frame.drop(index=frame.index[frame["tic"] == tic][i:], inplace=True)


def sparse(frame, row, i, rng):
    tic = frame.loc[row, "tic"]
    frame.drop(index=frame.index[frame["tic"] == tic][10:60], inplace=True)


def twin_row(frame, row, i, rng):
    twin = frame.loc[[row]].copy()
    if rng.random() < 0.5:
        twin[PRICES] = np.nan
    frame.loc[len(frame) + 1000] = twin.iloc[0]


def unsorted(frame, row, i, rng):
    order = rng.permutation(len(frame))
    frame[:] = frame.iloc[order].to_numpy()


CORRUPTIONS = [
    bad_price, inconsistent_bar, unit_error, bad_volume, zero_volume, missing, unexplained_split,
    announced_split, large_move, stale, flat_bar, falling_factor, late_start, early_end, sparse,
    twin_row, extreme_move, bad_action,
]  # fmt: skip


CORRUPTED = given(
    corrupt=st.sampled_from(CORRUPTIONS),
    tic=st.sampled_from("ABC"),
    i=st.integers(20, 100),
    seed=st.integers(0, 10**6),
)


def is_caught(corrupt, tic, i, seed):
    frame = CLEAN.copy()
    rng = np.random.default_rng(seed)
    corrupt(frame, cell(frame, tic, i), i, rng)
    rule = corrupt.__name__
    lenient = dict.fromkeys(("inconsistent_bar", "extreme_move", "bad_action"), "quarantine")
    panel, _, found = gate(frame, **lenient)
    assert (rule, tic) in found
    assert {t for _, t in found} == {tic}
    others = [a for a, t in enumerate(panel.tickers) if t != tic]
    assert panel.tradable_DA[:, others].all()
    if seed % 5 == 0:
        with pytest.raises(
            MarketDataError, match=rf"made up: rule {rule}: expected .* for {tic} on 2019"
        ):
            gate(frame, **lenient | {rule: "stop"})


@settings(max_examples=200, deadline=None)
@CORRUPTED
def test_each_corruption_is_caught_by_its_rule_in_its_ticker(corrupt, tic, i, seed):
    is_caught(corrupt, tic, i, seed)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@CORRUPTED
def test_each_of_a_thousand_corruptions_is_caught(corrupt, tic, i, seed):
    is_caught(corrupt, tic, i, seed)


def test_levels_decide_what_is_done():
    frame = CLEAN.copy()
    frame.loc[cell(frame, "B", 30), "volume"] = 0
    for level, tradable, named in (
        ("quarantine", 359, True),
        ("warn", 360, True),
        ("off", 360, False),
    ):
        panel, _, found = gate(frame, zero_volume=level)
        assert panel.tradable_DA.sum() == tradable
        assert (("zero_volume", "B") in found) is named
    with pytest.raises(ValueError, match="there is no rule 'zero_volum'; the rules are"):
        QualitySettings(levels={"zero_volum": "warn"})
    assert QualitySettings().level("missing") == LEVELS["missing"]


def test_a_stop_says_where_what_and_what_next():
    frame = CLEAN.copy()
    frame.loc[cell(frame, "B", 30), "high"] = 1.0
    with pytest.raises(
        MarketDataError,
        match=r"made up: rule inconsistent_bar: expected low <= open, close <= high, got [\d.]+ for B "
        r"on 2019-02-14 \(1 such cells\)\. Mend the prices, drop the ticker, or set "
        r"data\.quality\.levels\.inconsistent_bar to quarantine or warn",
    ):
        gate(frame)


def test_twins_that_contradict_each_other_are_both_shown():
    frame = pd.concat([CLEAN, CLEAN.iloc[[4]].assign(close=1.5, low=1.0)])
    with pytest.raises(
        MarketDataError,
        match=r"B on 2019-01-03 stands twice with different values: open .* close 1\.5",
    ):
        gate(frame)


def test_rows_in_any_order_give_the_same_panel_and_a_warning():
    shuffled = CLEAN.sample(frac=1, random_state=1)
    panel, _, found = gate(shuffled)
    assert {rule for rule, _ in found} == {"unsorted"}
    assert np.array_equal(panel.fields["close"], gate(CLEAN)[0].fields["close"])
    with pytest.raises(MarketDataError, match="rule unsorted: expected dates in order"):
        gate(shuffled, unsorted="stop")
    assert raw(shuffled).content_hash == raw(CLEAN).content_hash


def test_dates_without_a_session_are_refused():
    frame = CLEAN.copy()
    frame.loc[0, "date"] = pd.Timestamp("2019-01-01")
    with pytest.raises(
        MarketDataError, match="1 dates are not sessions of XNYS, the first row is A on 2019-01-01"
    ):
        gate(frame)


def test_wrong_columns_and_cells_are_named():
    for spoil, message in (
        (lambda f: f.drop(columns="close"), "column 'close' is missing; there are 'date', 'tic'"),
        (lambda f: f.iloc[:0], "there is no row"),
        (lambda f: f.assign(close=f["close"].astype(object).where(f.index != 7, "x")), "of column close is not what it should be"),
        (lambda f: f.assign(tic=f["tic"].where(f.index != 7, "")), "'' in row 8 of column tic"),
        (lambda f: f.assign(close=np.nan, open=np.nan, high=np.nan, low=np.nan, volume=0), "nothing is left to trade"),
    ):  # fmt: skip
        with pytest.raises(MarketDataError, match=message):
            gate(spoil(CLEAN))


def test_a_bar_whose_session_has_not_closed_is_dropped():
    today = CLEAN["date"].max()
    noon = datetime(today.year, today.month, today.day, 17, 0, tzinfo=UTC)
    panel, _, found = gate(CLEAN, now=noon)
    assert {rule for rule, _ in found} == {"unfinished_bar"}
    assert len(panel.dates_D) == 119
    assert len(gate(CLEAN, now=noon.replace(hour=21))[0].dates_D) == 120


def test_a_half_day_is_over_at_one_and_a_holiday_has_no_bar():
    frame = clean_frame(40, first="2022-11-01")
    day = frame[frame["date"] <= "2022-11-25"]  # the Friday after Thanksgiving: closes at 18:00 UTC
    for hour, bars in ((17, 17), (19, 18)):
        panel, _, _ = gate(day, now=datetime(2022, 11, 25, hour, 30, tzinfo=UTC))
        assert len(panel.dates_D) == bars
    assert "2022-11-24" not in panel.dates_D.astype(str)


def test_a_newest_session_without_all_prices_is_not_final():
    frame = CLEAN.copy()
    frame.loc[cell(frame, "B", 119), PRICES] = np.nan
    with pytest.raises(NotFinalError, match="data not final for 2019-06-24: B has no price yet"):
        gate(frame)
    live = {"asof": datetime(2019, 6, 25, tzinfo=UTC)}
    with pytest.raises(NotFinalError, match=r"B has no price yet\. Run again later"):
        gate(CLEAN.drop(index=cell(CLEAN, "B", 119)), facts=live)
    # Long gone is delisted, not late.
    early = CLEAN.drop(index=CLEAN.index[CLEAN["tic"] == "B"][100:])
    assert ("early_end", "B") in gate(early, facts=live)[2]


def test_a_missed_split_is_adjusted_once_and_not_again():
    frame = CLEAN.copy()
    before = (frame["tic"] == "B") & (frame["date"] < frame["date"].unique()[50])
    frame.loc[before, PRICES] *= 4
    frame.loc[cell(frame, "B", 50), "split"] = 4.0
    panel, _, found = gate(frame)
    assert ("announced_split", "B") in found
    assert ("unexplained_split", "B") not in found
    clean = gate(CLEAN)[0]
    once = adjusted(panel)
    assert once.fields["close"] == pytest.approx(clean.fields["close"])
    # The source has caught up: the same event, prices already on the new scale.
    frame.loc[before, PRICES] /= 4
    again = adjusted(gate(frame)[0])
    assert again.fields["close"] == pytest.approx(clean.fields["close"])


def test_a_real_large_move_is_flagged_and_never_rescaled():
    # GameStop, 13 to 29 January 2021: opens and closes as printed.
    opens = [20.42, 38.09, 38.49, 41.55, 37.37, 39.23, 42.59, 96.73, 88.56, 354.83, 265.00, 379.71]
    tail = [31.40, 39.91, 35.50, 39.36, 39.12, 43.03, 65.01, 76.79, 147.98, 347.51, 193.60, 325.00]
    frame = CLEAN[CLEAN["tic"] == "A"].reset_index(drop=True)
    before = frame.index[:-12]
    frame.loc[before, PRICES] *= 19.95 / frame.loc[before[-1], "close"]
    for row, open_, close in zip(frame.index[-12:], opens, tail, strict=True):
        frame.loc[row, PRICES] = [open_, max(open_, close) + 1, min(open_, close) - 1, close]
    panel, _, found = gate(frame)
    assert ("large_move", "A") in found
    assert panel.tradable_DA.all()
    assert adjusted(panel).fields["close"][-12:, 0].tolist() == tail


def test_classic4_has_exactly_its_three_splits():
    _, report = check(load_bundled("classic4"), QualitySettings())
    found = [(f.tic, f.date, float(f.value)) for f in report.findings if "split" in f.rule]
    # Apple 2:1 on 21 June 2000 and 28 February 2005, Microsoft 2:1 on 18 February 2003.
    assert found == [
        ("AAPL", "2000-06-21", 2),
        ("MSFT", "2003-02-18", 2),
        ("AAPL", "2005-02-28", 2),
    ]


def test_stocknet88_has_no_false_split_and_its_known_defects():
    frame = pd.read_parquet(DATA / "stocknet88.parquet")
    panel, report = check(RawPrices(frame, "stocknet88", "XNYS"), QualitySettings())
    counts = {first.rule: cells for first, cells, _ in report.by_rule()}
    assert not [rule for rule in counts if "split" in rule]
    assert counts["zero_volume"] == 111
    assert counts["missing"] == 3
    assert len(panel.tickers) == 88
    assert panel.tradable_DA.sum() == len(frame) - 111 - 3
    opens, closes = panel.fields["open"], panel.fields["close"]
    assert not splits.split_like(opens, closes).any()


def test_the_bundled_sets_are_clean_and_name_their_defects():
    for dataset in datasets():
        prices = load_bundled(dataset.name)
        panel, report = check(prices, QualitySettings())
        assert all(f.done == "named only" for f in report.findings)
        assert panel.tradable_DA.sum() == report.rows_in
        assert prices.defects == tuple(dataset.facts["known_defects"])


def test_without_opens_a_jump_may_be_a_split_or_a_day():
    # AMD rose by 52 % on 22 April 2016 without a split: closes alone cannot tell.
    _, report = check(load_bundled("us20", ("AMD",)), QualitySettings())
    found = [f.date for f in report.findings if f.rule == "split_like_close"]
    assert "2016-04-22" in found


def test_the_calendar_knows_closed_days_of_long_ago():
    assert pd.Timestamp("2001-09-11") not in DATES
    assert pd.Timestamp("2012-10-29") not in DATES


def with_prices(tic, i, factor):
    frame = CLEAN.copy()
    frame.loc[(frame["tic"] == tic) & (frame["date"] < frame["date"].unique()[i]), PRICES] *= factor
    return frame


def returns_of(panel, tic):
    close = adjusted(panel).fields["close"][:, panel.tickers.index(tic)]
    return np.diff(np.log(close[np.isfinite(close)]))


def test_only_what_adjusts_the_prices_explains_their_jumps():
    # Raw closes around a 2:1 split, and an adjusted close that knows it.
    frame = with_prices("B", 50, 2.0).assign(adj_close=CLEAN["close"])
    by_close = gate(frame.drop(columns=["dividend", "split"]))
    assert ("announced_split", "B") in by_close[2]
    for name in ("dividend", "split"):
        half_known = gate(frame.drop(columns=name))
        assert ("announced_split", "B") in half_known[2]
        assert np.abs(returns_of(half_known[0], "B")).max() < 0.05
    # Both actions are there and name no split: the adjusted close is not used, so it explains nothing.
    unannounced, _, found = gate(frame)
    assert ("unexplained_split", "B") in found
    assert not unannounced.tradable_DA[50:, 1].any()
    assert unannounced.tradable_DA[:50, 1].all()


def test_an_action_on_a_bar_without_a_price_is_not_lost():
    for column, value, factor in (("split", 2.0, 2.0), ("dividend", 0.2, None)):
        frame = with_prices("B", 50, factor) if factor else CLEAN.copy()
        row, before = cell(frame, "B", 50), cell(frame, "B", 49)
        expected = returns_of(gate(CLEAN.drop(index=cell(CLEAN, "B", 50)))[0], "B")
        if column == "dividend":
            value = 0.1 * frame.loc[before, "close"]
            expected[49] -= np.log(0.9)
        frame.loc[row, column] = value
        frame.loc[row, "open"] = 0.0  # the bar is quarantined
        panel, _, found = gate(frame)
        assert ("bad_price", "B") in found
        assert returns_of(panel, "B") == pytest.approx(expected, abs=1e-9), column


def test_a_dividend_on_the_day_of_a_missed_split_is_one_of_the_new_shares():
    frame = with_prices("B", 50, 2.0)
    frame.loc[cell(frame, "B", 50), ["split", "dividend"]] = 2.0, 1.0
    expected = returns_of(gate(CLEAN)[0], "B")
    expected[49] -= np.log(1 - 1.0 / CLEAN.loc[cell(CLEAN, "B", 49), "close"])
    assert returns_of(gate(frame)[0], "B") == pytest.approx(expected)


def test_a_spin_off_of_a_few_percent_is_left_to_the_source():
    frame = CLEAN.copy()
    frame.loc[cell(frame, "B", 50), "split"] = 1.046
    assert returns_of(gate(frame)[0], "B") == pytest.approx(returns_of(gate(CLEAN)[0], "B"))


@pytest.mark.parametrize("ratio", [8, 15, 25, 50])
def test_an_unusual_split_that_nothing_explains_does_not_pass(ratio):
    frame = CLEAN.copy()
    unexplained_split(frame, cell(frame, "B", 50), 50, np.random.default_rng(0))
    last, first = cell(frame, "B", 49), cell(frame, "B", 50)
    now = frame.loc[last, "close"] / frame.loc[first, "open"]
    frame.loc[(frame["tic"] == "B") & (frame["date"] < frame["date"].unique()[50]), PRICES] *= (
        ratio / now
    )
    with pytest.raises(MarketDataError, match="rule extreme_move"):
        gate(frame, unexplained_split="off")
    assert ("unexplained_split", "B") in gate(frame, extreme_move="warn")[2]


@pytest.mark.parametrize("i", [0, 119])
def test_a_wrong_unit_at_an_end_stops(i):
    frame = CLEAN.copy()
    frame.loc[cell(frame, "B", i), PRICES] *= 70
    with pytest.raises(
        MarketDataError, match="rule extreme_move: expected a close within a fifth and five times"
    ):
        gate(frame)


def test_a_newest_session_that_nobody_has_is_dropped():
    frame = CLEAN.copy()
    frame.loc[frame["date"] == frame["date"].max(), [*PRICES, "volume"]] = np.nan
    panel, _, found = gate(frame)
    assert len(panel.dates_D) == 119
    assert {rule for rule, _ in found} == {"unfinished_bar"}


def test_what_comes_later_changes_no_mask_before_it():
    frame = with_prices("B", 80, 2.0)  # an unexplained split on session 80
    frame = frame.drop(index=frame.index[frame["tic"] == "C"][70:])  # and C ends
    frame.loc[cell(frame, "A", 90), "volume"] = 0
    days = frame["date"].unique()
    whole = gate(frame)[0]
    for t in (60, 69, 70, 79, 85, 95):
        cut = gate(frame[frame["date"] <= days[t]])[0]
        assert np.array_equal(cut.tradable_DA, whole.tradable_DA[: t + 1])


def test_a_session_that_all_tickers_lack_is_seen():
    day = CLEAN["date"].unique()[50]
    panel, _, found = gate(CLEAN[CLEAN["date"] != day])
    assert {("missing", t) for t in "ABC"} == found
    assert len(panel.dates_D) == 120


def test_prices_from_before_the_calendar_are_named():
    frame = CLEAN.assign(date=CLEAN["date"] - pd.Timedelta(days=365 * 40))
    with pytest.raises(
        MarketDataError, match="the calendar of XNYS begins on 1985-01-02, the prices on 1979"
    ):
        gate(frame)
