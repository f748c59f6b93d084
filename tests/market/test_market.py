"""Prices, gate, features, windows and snapshots."""

import json

import numpy as np
import pandas as pd
import pytest

from podracer.errors import ConfigError, MarketDataError
from podracer.market import features
from podracer.market.market import build_market, open_market
from podracer.market.prices import PricePanel
from podracer.market.scaling import fit_scaler
from podracer.market.sessions import sessions_of
from podracer.market.settings import DataSettings, FeatureSettings
from podracer.market.snapshot import load_prices, read_snapshot, write_snapshot
from podracer.market.sources.bundled import datasets, load_bundled
from podracer.market.sources.file import load_file
from podracer.market.turbulence import turbulence
from podracer.market.windows import Window, WindowSettings, resolve_windows
from tests.conftest import random_closes

DATES = sessions_of("XNYS")


def frame(num_sessions=5, tickers=("A", "B"), seed=0):
    dates = DATES[DATES >= "2020-01-02"][:num_sessions]
    closes = random_closes(num_sessions, len(tickers), seed)
    rows = [
        {"date": d, "tic": t, "close": closes[i, j]}
        for i, d in enumerate(dates)
        for j, t in enumerate(tickers)
    ]
    return pd.DataFrame(rows)


def csv(tmp_path, data, **kwargs):
    path = tmp_path / "prices.csv"
    data.to_csv(path, index=False, **kwargs)
    return path


def panel(num_sessions=400, num_assets=3, **fields):
    closes = random_closes(num_sessions, num_assets)
    dates = DATES[DATES >= "2010-01-04"][:num_sessions].to_numpy("datetime64[D]")
    return PricePanel(dates, tuple("ABCDEFG"[:num_assets]), {"close": closes} | fields)


def test_every_bundled_dataset_loads_and_has_windows_that_fit():
    assert [d.name for d in datasets()] == ["us20", "mega6", "classic4"]
    for dataset in datasets():
        prices = load_bundled(dataset.name)
        market = build_market(prices, FeatureSettings(), dataset.name)
        windows = resolve_windows(
            WindowSettings(**dataset.windows), market.dates_D, market.meta["warmup_bars"]
        )
        assert len(prices.tickers) == dataset.facts["tickers"]
        assert [str(prices.dates_D[i]) for i in (0, -1)] == dataset.facts["span"]
        train = windows.train
        assert np.isfinite(market.market_features_DF[train.start :, 0]).all()


def test_a_csv_with_usual_column_names_keeps_its_tickers_verbatim(tmp_path):
    data = frame(tickers=("0005", "BRK.B")).rename(
        columns={"date": "Date", "tic": "Symbol", "close": "Adj Close"}
    )
    data["Close"] = data["Adj Close"]
    prices = load_file(csv(tmp_path, data, encoding="utf-8-sig"), "XNYS")
    assert prices.tickers == ("0005", "BRK.B")
    assert sorted(prices.fields) == ["adj_close", "close"]
    assert prices.fields["close"][:, 0] == pytest.approx(random_closes(5, 2)[:, 0])


def test_shuffled_rows_give_the_same_content(tmp_path):
    data = frame()
    one = load_file(csv(tmp_path, data), "XNYS")
    other = load_file(csv(tmp_path, data.sample(frac=1, random_state=1)), "XNYS")
    assert one.content_hash == other.content_hash


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda d: pd.concat([d, d.iloc[[3]]]), "B on 2020-01-03 stands twice"),
        (lambda d: d.assign(close=d["close"].where(d.index != 2)), "1 values of close are not a positive number, the first is  for A on 2020-01-03"),
        (lambda d: d.assign(close=d["close"].where(d.index != 2, 0.0)), "the first is 0.0 for A on 2020-01-03"),
        (lambda d: d.assign(close=d["close"].where(d.index != 2, -5.0)), "the first is -5.0 for A on 2020-01-03"),
        (lambda d: d.assign(volume=-1), "volume are not a number of 0 or more"),
        (lambda d: d.assign(date=d["date"].where(d.index != 0, pd.Timestamp("2020-01-01"))), "1 dates are not sessions of XNYS, the first row is A on 2020-01-01"),
        (lambda d: d.drop(index=2), "A has no price on 1 sessions of XNYS inside its own span, the first is 2020-01-03"),
        (lambda d: d.rename(columns={"close": "last"}), "column 'close' is missing"),
        (lambda d: d.iloc[:0], "there is no row"),
        (lambda d: d.assign(date=d["date"].astype(str).where(d.index != 1, "soon")), "'soon' in data row 2 is not a date"),
    ],
)  # fmt: skip
def test_bad_prices_are_refused_naming_the_cell(tmp_path, spoil, message):
    with pytest.raises(MarketDataError, match=message):
        load_file(csv(tmp_path, spoil(frame())), "XNYS")


def test_unreadable_files_and_wrong_mappings_are_refused(tmp_path):
    with pytest.raises(MarketDataError, match="there is no such file"):
        load_file(tmp_path / "none.csv", "XNYS")
    (tmp_path / "x.parquet").write_bytes(b"not parquet")
    with pytest.raises(MarketDataError, match=r"not readable as \.parquet"):
        load_file(tmp_path / "x.parquet", "XNYS")
    with pytest.raises(MarketDataError, match=r"data\.columns names 'Zeit'"):
        load_file(csv(tmp_path, frame()), "XNYS", {"date": "Zeit"})


def test_a_market_is_named_by_what_agents_see_not_by_what_it_is_called():
    prices = panel()
    one = build_market(prices, FeatureSettings(), "a.csv")
    assert build_market(prices, FeatureSettings(), "b.csv").hash == one.hash


def test_unknown_datasets_and_tickers_are_refused():
    with pytest.raises(MarketDataError, match="there is no bundled dataset 'us200'"):
        load_bundled("us200")
    with pytest.raises(MarketDataError, match="the data has no ticker 'TSLA'"):
        load_prices(DataSettings(tickers=("AAPL", "TSLA")))
    with pytest.raises(ValueError, match="source: file needs a path"):
        DataSettings(source="file")


def test_a_bundled_file_with_other_bytes_is_refused(tmp_path, monkeypatch):
    from podracer.market.sources import bundled

    manifest = json.loads((bundled.BUNDLED / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    (tmp_path / "mega6.parquet").write_bytes(b"other")
    monkeypatch.setattr(bundled, "BUNDLED", tmp_path)
    with pytest.raises(MarketDataError, match=r"mega6\.parquet: expected sha256 0e48b59250a2"):
        load_bundled("mega6")


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
        assert np.isfinite(values[feature.lookback_bars :]).all(), feature.name
        assert not np.isfinite(values[: feature.lookback_bars]).any(), feature.name


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
    prices = panel(700, 3)
    market = build_market(
        PricePanel(prices.dates_D, prices.tickers, {"close": closes}), FeatureSettings(), "late"
    )
    assert market.tradable_DA[:, 1].tolist() == [False] * 300 + [True] * 400
    assert market.feature_valid_DA[:, 1].sum() == 400 - 252
    assert market.feature_valid_DA[252:, 0].all()
    assert (market.asset_features_DAK[:500, 1] == 0).all()


def test_features_that_need_absent_columns_or_do_not_exist_are_refused():
    with pytest.raises(ConfigError, match=r"features\.market: cci_30 needs the column high, low"):
        build_market(panel(), FeatureSettings(market=("cci_30",)), "x")
    with pytest.raises(ConfigError, match=r"features\.asset: there is no feature 'mom'"):
        build_market(panel(), FeatureSettings(asset=("mom",)), "x")
    with pytest.raises(MarketDataError, match="need 253 sessions to warm up, there are 100"):
        build_market(panel(100), FeatureSettings(), "x")


def test_all_four_prices_are_adjusted_by_one_factor():
    closes = random_closes(300, 1)
    prices = panel(300, 1, open=closes * 2, adj_close=closes / 4)
    market = build_market(prices, FeatureSettings(), "x")
    assert market.price_DA == pytest.approx(np.round(closes / 4 * 1e6))
    assert market.open_DA == pytest.approx(np.round(closes / 2 * 1e6))


def test_prices_below_the_money_unit_are_refused():
    with pytest.raises(MarketDataError, match="cannot be traded in whole money units"):
        build_market(panel(300, 1, adj_close=np.full((300, 1), 1e-8)), FeatureSettings(), "x")


def test_a_saved_market_is_the_same_and_a_damaged_one_is_refused(tmp_path):
    market = build_market(panel(), FeatureSettings(), "x")
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


def test_a_snapshot_keeps_content_and_refuses_damage(tmp_path):
    prices = load_bundled("classic4")
    folder = write_snapshot(prices, tmp_path / "s", "classic4")
    written = (folder / "prices.parquet").stat().st_mtime_ns
    again, name = read_snapshot(folder)
    assert (again.content_hash, name) == (prices.content_hash, "classic4")
    write_snapshot(prices, folder, "classic4")
    assert (folder / "prices.parquet").stat().st_mtime_ns == written
    data = pd.read_parquet(folder / "prices.parquet")
    data.loc[5, "close"] *= 2
    data.to_parquet(folder / "prices.parquet")
    with pytest.raises(MarketDataError, match="a damaged DVC cache is checked out"):
        read_snapshot(folder)
    with pytest.raises(MarketDataError, match="not a readable snapshot"):
        read_snapshot(tmp_path / "none")


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
