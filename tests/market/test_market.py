"""Features, windows, the market."""

from dataclasses import replace

import numpy as np
import pytest
import talib

from podracer.errors import ConfigError, MarketDataError
from podracer.market import features
from podracer.market.findings import QualitySettings
from podracer.market.market import build_market, open_market
from podracer.market.prices import PricePanel
from podracer.market.quality import check
from podracer.market.scaling import fit_scaler
from podracer.market.sessions import sessions_of
from podracer.market.settings import FeatureSettings
from podracer.market.sources.bundled import datasets, load_bundled
from podracer.market.turbulence import turbulence
from podracer.market.windows import Window, WindowSettings, resolve_windows
from tests.conftest import random_closes

DATES = sessions_of("XNYS")


def panel(num_sessions=400, num_assets=3, **fields):
    closes = random_closes(num_sessions, num_assets)
    dates = DATES[DATES >= "2010-01-04"][:num_sessions].to_numpy("datetime64[D]")
    values = {"close": closes} | fields
    tradable = np.isfinite(values["close"])
    return PricePanel("x", "hash", dates, tuple("ABCDEFG"[:num_assets]), values, tradable)


def test_every_bundled_dataset_loads_and_has_windows_that_fit():
    assert [d.name for d in datasets()] == ["us20", "mega6", "classic4"]
    for dataset in datasets():
        raw = load_bundled(dataset.name)
        prices, _ = check(raw, QualitySettings())
        market = build_market(prices, FeatureSettings())
        windows = resolve_windows(
            WindowSettings(**dataset.windows), market.dates_D, market.meta["warmup_bars"]
        )
        assert len(prices.tickers) == dataset.facts["tickers"]
        assert [str(prices.dates_D[i]) for i in (0, -1)] == dataset.facts["span"]
        train = windows.train
        assert np.isfinite(market.market_features_DF[train.start :, 0]).all()


def test_a_market_is_named_by_what_agents_see_not_by_what_it_is_called():
    prices = panel()
    one = build_market(prices, FeatureSettings())
    assert build_market(replace(prices, name="other"), FeatureSettings()).hash == one.hash


def test_features_by_hand():
    prices = panel(300, 2)
    closes = prices.fields["close"]
    found = {n: f.compute(prices) for n, f in features.ASSET_FEATURES.items()}
    t = 280
    assert found["momentum_12_1"][t] == pytest.approx(np.log(closes[t - 21] / closes[t - 252]))
    assert found["reversal_1m"][t] == pytest.approx(-np.log(closes[t] / closes[t - 21]))
    returns = np.diff(np.log(closes), axis=0)  # returns[i] is of session i + 1
    assert found["volatility_60"][t] == pytest.approx(returns[t - 60 : t].std(0, ddof=1))
    year = returns[t - 252 : t]
    slope, intercept = np.polyfit(year.mean(1), year[:, 1], 1)
    residual = year[:, 1] - intercept - slope * year.mean(1)
    assert found["beta_252"][t, 1] == pytest.approx(slope)
    assert found["idiosyncratic_volatility_252"][t, 1] == pytest.approx(
        np.sqrt((residual**2).sum() / 251), rel=1e-6
    )
    high = closes[t - 251 : t + 1].max(0)
    assert found["high_52w_distance"][t] == pytest.approx(np.log(closes[t] / high))


def test_every_feature_is_nan_before_its_warm_up_and_finite_after():
    closes = random_closes(300, 3)
    extra = {"high": closes * 1.01, "low": closes * 0.99, "dollar_volume": closes * 1e6}
    prices = panel(300, 3, **extra)
    for feature in [*features.ASSET_FEATURES.values(), *features.MARKET_FEATURES.values()]:
        values = feature.compute(prices)
        assert np.isfinite(values[feature.lookback :]).all(), feature.name
        assert not np.isfinite(values[: feature.lookback]).any(), feature.name


def test_turbulence_is_the_mahalanobis_distance_to_the_trailing_window():
    rng = np.random.default_rng(0)
    returns = rng.normal(0, 0.01, (40, 3))
    returns[:10, 2] = np.nan
    found = turbulence(returns, window=20)
    for t, names in ((22, [0, 1]), (35, [0, 1, 2])):
        history = returns[t - 20 : t][:, names]
        gap = returns[t, names] - history.mean(0)
        expected = gap @ np.linalg.inv(np.cov(history.T)) @ gap
        assert found[t] == pytest.approx(expected)
    assert np.isnan(found[:20]).all()


def test_z_scores_across_the_universe_skip_missing_names():
    scores = features.standardise_across_universe(np.array([[1.0, 3.0, np.nan], [2.0, 2.0, 2.0]]))
    assert scores[0, :2].tolist() == [-1.0, 1.0]
    assert np.isnan(scores[0, 2])
    assert scores[1].tolist() == [0.0, 0.0, 0.0]


def test_a_late_starter_is_masked_and_costs_no_one_else_a_row():
    closes = random_closes(700, 3)
    closes[:300, 1] = np.nan
    market = build_market(panel(700, 3, close=closes), FeatureSettings())
    assert market.tradable_DA[:, 1].tolist() == [False] * 300 + [True] * 400
    assert market.feature_valid_DA[:, 1].sum() == 400 - 252
    assert market.feature_valid_DA[252:, 0].all()
    assert (market.asset_features_DAK[:500, 1] == 0).all()


def test_features_that_need_absent_columns_or_do_not_exist_are_refused():
    with pytest.raises(ConfigError, match=r"features\.market: cci_30 needs the column high, low"):
        build_market(panel(), FeatureSettings(market=("cci_30",)))
    with pytest.raises(ConfigError, match=r"features\.asset: there is no feature 'mom'"):
        build_market(panel(), FeatureSettings(asset=("mom",)))
    with pytest.raises(MarketDataError, match="need 253 sessions to warm up, there are 100"):
        build_market(panel(100), FeatureSettings())


def test_all_four_prices_are_adjusted_by_one_factor():
    closes = random_closes(300, 1)
    prices = panel(300, 1, open=closes * 2, adj_close=closes / 4)
    market = build_market(prices, FeatureSettings())
    assert market.price_DA == pytest.approx(np.round(closes / 4 * 1e6))
    assert market.open_DA == pytest.approx(np.round(closes / 2 * 1e6))


def test_short_holes_are_filled_for_features_and_long_ones_start_them_anew():
    closes = random_closes(700, 2)
    closes[400:403, 0] = np.nan
    closes[500:506, 1] = np.nan
    market = build_market(panel(700, 2, close=closes), FeatureSettings())
    assert not market.tradable_DA[400:403, 0].any()
    assert np.isnan(market.price_DA[401, 0])
    assert market.feature_valid_DA[252:, 0].all()
    # Six bars are more than the five that are filled; the look-backs are 252 bars.
    assert not market.feature_valid_DA[505:757, 1].any()
    rsi = market.market_features_DF[:, market.meta["market_features"].index("rsi_30:B")]
    alone = talib.RSI(closes[506:, 1], 30) / 50 - 1
    assert rsi[506 + 30 :] == pytest.approx(alone[30:], abs=1e-6)
    assert np.isnan(rsi[505:536]).all()


def test_features_do_not_tell_whether_a_ticker_will_come_back():
    ends, pauses = random_closes(400, 3), random_closes(400, 3)
    ends[300:, 1] = np.nan
    pauses[300:302, 1] = np.nan
    one, other = (build_market(panel(400, 3, close=c), FeatureSettings()) for c in (ends, pauses))
    for name in ("asset_features_DAK", "feature_valid_DA", "market_features_DF"):
        before = (np.asarray(getattr(m, name))[:302] for m in (one, other))
        assert np.array_equal(*before, equal_nan=True), name


def test_an_equal_market_of_other_prices_is_saved_with_its_own_name(tmp_path):
    market = build_market(panel(), FeatureSettings())
    market.save(tmp_path / "m")
    build_market(replace(panel(), content_hash="newer"), FeatureSettings()).save(tmp_path / "m")
    assert open_market(tmp_path / "m").meta["dataset_hash"] == "newer"


def test_prices_below_the_money_unit_are_refused():
    with pytest.raises(MarketDataError, match="cannot be traded in whole money units"):
        build_market(panel(300, 1, adj_close=np.full((300, 1), 1e-8)), FeatureSettings())


def test_a_saved_market_is_the_same_and_a_damaged_one_is_refused(tmp_path):
    market = build_market(panel(), FeatureSettings())
    folder = market.save(tmp_path / "market")
    again = open_market(folder)
    assert again.hash == market.hash
    assert isinstance(again.price_DA, np.memmap)
    assert market.save(folder) == folder
    values = np.load(folder / "price_DA.npy")
    values[10, 0] += 1
    np.save(folder / "price_DA.npy", values)
    with pytest.raises(MarketDataError, match="the files have changed since they were written"):
        open_market(folder)
    with pytest.raises(MarketDataError, match="not a readable market"):
        open_market(tmp_path / "none")


def test_the_scaler_sees_only_the_training_window():
    values = np.arange(20.0)[:, None].repeat(2, axis=1)
    values[:, 1] = 7.0
    scaler = fit_scaler(values, Window("train", 5, 10))
    scores = scaler.apply(values)
    assert scaler.mean_F.tolist() == [7.0, 7.0]
    assert scores[8, 0] == pytest.approx((8 - 7) / np.sqrt(2.0))
    assert (scores[:, 1] == 0).all()
    assert scores.max() <= 10.0


WINDOWS = {
    "train": "2012-01-01 .. 2014-12-31",
    "selection": "2015-01-01 .. 2016-12-31",
    "lockbox": "2017-01-01 .. 2018-12-31",
}


def sessions_between(first, last):
    return DATES[(first <= DATES) & (last >= DATES)].to_numpy("datetime64[D]")


def test_windows_cover_their_dates_and_the_embargo_cuts_the_later_ones():
    dates = sessions_between("2010-01-04", "2018-12-31")
    windows = resolve_windows(WindowSettings(**WINDOWS), dates, 253)
    assert str(dates[windows.train.start]) == "2012-01-03"
    assert str(dates[windows.train.stop - 1]) == "2014-12-31"
    first_2015 = int(np.searchsorted(dates, np.datetime64("2015-01-01")))
    assert windows.selection.start == first_2015 + 60
    assert windows.lockbox.num_returns == windows.lockbox.stop - windows.lockbox.start - 1


def test_windows_by_length_end_at_the_last_session():
    dates = sessions_between("2010-01-04", "2020-02-28")
    settings = WindowSettings(train="4y", selection="2y", lockbox="18m", embargo_sessions=0)
    windows = resolve_windows(settings, dates, 253)
    # 28 February 2020 back 18 months: from 29 August 2018; back 2 years: from 29 August 2016.
    assert str(dates[windows.lockbox.start]) == "2018-08-29"
    assert windows.lockbox.stop == len(dates)
    assert str(dates[windows.selection.start]) == "2016-08-29"
    assert str(dates[windows.train.start]) == "2012-08-29"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"selection": "2014-06-01 .. 2016-12-31"},
            "selection starts on 2014-06-01, but train ends",
        ),
        ({"train": "2014-12-31 .. 2012-01-01"}, "before its start"),
        ({"lockbox": "2017-01-01 .. 2022-12-31"}, "is not inside the data"),
        (
            {"train": "8y", "selection": "4y", "lockbox": "3y"},
            r"windows: 8y \+ 4y \+ 3y before 2018-12-31 start on 2004-01-01, the data on 2010-01-04: it has 9\.0 years",
        ),
        ({"selection": "2016-10-01 .. 2016-12-31"}, "3 sessions are left after the embargo"),
        (
            {"train": "2010-06-01 .. 2014-12-31"},
            "need 253 sessions before the first day, there are",
        ),
    ],
)
def test_windows_that_cannot_be_are_refused(change, message):
    dates = sessions_between("2010-01-04", "2018-12-31")
    with pytest.raises(ConfigError, match=message):
        resolve_windows(WindowSettings(**WINDOWS | change), dates, 253)


def test_windows_in_two_forms_or_none_are_refused():
    with pytest.raises(ValueError, match="all three windows as dates, or all three as lengths"):
        WindowSettings(**WINDOWS | {"train": "3y"})
    with pytest.raises(ValueError, match="expected dates as"):
        WindowSettings(**WINDOWS | {"train": "three years"})
