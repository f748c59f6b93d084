"""Bundled sets, files, snapshots and their differences."""

import json
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest

from podracer.errors import MarketDataError
from podracer.market.diff import difference, returns_agree
from podracer.market.loading import load_raw
from podracer.market.raw import Failure, RawPrices, yahoo_symbol
from podracer.market.settings import DataSettings
from podracer.market.snapshot import find_snapshot, newest, read_snapshot, write_snapshot
from podracer.market.sources.bundled import load_bundled
from podracer.market.sources.file import load_file
from tests.market.prices import clean_frame, raw

CLEAN = clean_frame(10)


def csv(tmp_path, data, **kwargs):
    path = tmp_path / "prices.csv"
    data.to_csv(path, index=False, **kwargs)
    return path


def test_a_csv_comes_back_as_it_was_written(tmp_path):
    loaded = load_file(csv(tmp_path, CLEAN), "XNYS")
    pd.testing.assert_frame_equal(loaded.frame, CLEAN, check_dtype=False)
    assert loaded.content_hash == raw(CLEAN).content_hash
    parquet = tmp_path / "prices.parquet"
    CLEAN.to_parquet(parquet)
    assert load_file(parquet, "XNYS").content_hash == raw(CLEAN).content_hash


def test_usual_names_a_byte_order_mark_and_decimal_commas_are_read_and_tickers_kept(tmp_path):
    data = CLEAN.replace({"tic": {"A": "0005", "B": "BRK.B", "C": "7203"}})
    data = data.rename(columns={"date": "Date", "tic": "Symbol", "close": "Close", "volume": "Vol"})
    data["Remark"] = "none"
    path = csv(tmp_path, data, encoding="utf-8-sig", sep=";", decimal=",")
    loaded = load_file(path, "XNYS", decimal=",", columns={"volume": "Vol"})
    assert loaded.tickers == ("0005", "7203", "BRK.B")
    assert loaded.frame["close"].tolist() == CLEAN["close"].tolist()
    with pytest.raises(
        MarketDataError,
        match=r"in data row 1 of column open is not a number\. Correct it or set data\.decimal to ','",
    ):
        load_file(path, "XNYS", columns={"volume": "Vol"})


def test_a_mapping_goes_before_a_column_of_our_name(tmp_path):
    data = CLEAN.assign(total=CLEAN["close"] * 2)
    loaded = load_file(csv(tmp_path, data), "XNYS", {"close": "total"})
    assert loaded.frame["close"].tolist() == (CLEAN["close"] * 2).tolist()


def test_moments_of_a_day_become_the_day_at_the_exchange(tmp_path):
    moments = CLEAN["date"].dt.tz_localize("America/New_York") + pd.Timedelta(hours=16)
    parquet = tmp_path / "prices.parquet"
    CLEAN.assign(date=moments).to_parquet(parquet)
    assert load_file(parquet, "XNYS").frame["date"].tolist() == CLEAN["date"].tolist()


def test_days_are_the_written_ones_whatever_zone_follows(tmp_path):
    # As yfinance writes them: the offset changes with daylight saving.
    data = clean_frame(120)
    stamps = data["date"].dt.tz_localize("America/New_York").astype(str)
    assert {s[-6:] for s in stamps} == {"-05:00", "-04:00"}
    assert (
        load_file(csv(tmp_path, data.assign(date=stamps)), "XNYS").frame["date"].tolist()
        == data["date"].tolist()
    )
    numbers = tmp_path / "prices.parquet"
    data.assign(
        date=data["date"].dt.strftime("%Y%m%d").astype(int), tic=data["tic"] + " "
    ).to_parquet(numbers)
    loaded = load_file(numbers, "XNYS")
    assert loaded.frame["date"].tolist() == data["date"].tolist()
    assert loaded.tickers == ("A", "B", "C")


def test_two_columns_of_one_meaning_are_refused(tmp_path):
    for twin in ("ticker", "Close", "timestamp"):
        data = CLEAN.assign(
            **{twin: CLEAN[{"ticker": "tic", "Close": "close", "timestamp": "date"}[twin]]}
        )
        with pytest.raises(MarketDataError, match=r"two columns mean '(tic|close|date)'"):
            load_file(csv(tmp_path, data), "XNYS")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda d: d.assign(date=d["date"].astype(str).where(d.index != 1, "soon")), "'soon' in data row 2 is not a date"),
        (lambda d: d.assign(close=d["close"].astype(str).where(d.index != 1, "1.2.3")), r"'1\.2\.3' in data row 2 of column close is not a number\. Correct it\."),
        (lambda d: d.assign(tic=d["tic"].replace({"A": "BRK.B", "B": "BRK-B"})), "'BRK-B' and 'BRK.B' are two spellings of one share class"),
    ],
)  # fmt: skip
def test_unreadable_cells_are_named(tmp_path, spoil, message):
    with pytest.raises(MarketDataError, match=message):
        load_file(csv(tmp_path, spoil(CLEAN)), "XNYS")


def test_unreadable_files_and_wrong_mappings_are_refused(tmp_path):
    with pytest.raises(MarketDataError, match="there is no such file"):
        load_file(tmp_path / "none.csv", "XNYS")
    (tmp_path / "x.parquet").write_bytes(b"not parquet")
    with pytest.raises(MarketDataError, match=r"not readable as \.parquet"):
        load_file(tmp_path / "x.parquet", "XNYS")
    (tmp_path / "empty.csv").write_bytes(b"")
    with pytest.raises(MarketDataError, match=r"not readable as \.csv"):
        load_file(tmp_path / "empty.csv", "XNYS")
    with pytest.raises(MarketDataError, match=r"data\.columns names 'Zeit'"):
        load_file(csv(tmp_path, CLEAN), "XNYS", {"date": "Zeit"})


def test_yahoo_spells_share_classes_with_a_hyphen_and_exchanges_with_a_dot():
    spelled = {
        "BRK.B": "BRK-B",
        "BF.A": "BF-A",
        "VOD.L": "VOD.L",
        "7203.T": "7203.T",
        "0005.HK": "0005.HK",
        "AAPL": "AAPL",
    }
    assert {t: yahoo_symbol(t) for t in spelled} == spelled


def test_unknown_datasets_and_tickers_are_refused():
    with pytest.raises(MarketDataError, match="there is no bundled dataset 'us200'"):
        load_bundled("us200")
    with pytest.raises(MarketDataError, match="the data has no ticker 'TSLA'"):
        load_raw(DataSettings(tickers=("AAPL", "TSLA")))


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"source": "file"}, "source: file needs a path"),
        ({"source": "yahoo"}, "source: yahoo needs tickers and a start"),
        ({"bar": "15m"}, "bundled datasets are daily, not 15m"),
        ({"exchange": "NYSE2"}, "there is no exchange calendar 'NYSE2'; New York is XNYS"),
        ({"source": "yahoo", "tickers": ["A"], "start": "2020-01-01", "bar": "1m"}, "Yahoo keeps 1m bars for 30 days, so start must be .* or later, got 2020-01-01"),
        ({"source": "yahoo", "tickers": ["A"], "start": "2020-01-01", "bar": "1h"}, "Yahoo keeps 1h bars for 730 days"),
    ],
)  # fmt: skip
def test_settings_that_contradict_each_other_are_refused(facts, message):
    with pytest.raises(ValueError, match=message):
        DataSettings(**facts)


def test_settings_that_yahoo_can_answer_are_accepted():
    recent = datetime.now(UTC).date() - timedelta(days=20)
    settings = DataSettings(source="yahoo", tickers=("A",), start=recent, bar="1m")
    assert settings.bar == "1m"


def test_a_bundled_file_with_other_bytes_is_refused(tmp_path, monkeypatch):
    from podracer.market.sources import bundled

    manifest = json.loads((bundled.BUNDLED / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    (tmp_path / "mega6.parquet").write_bytes(b"other")
    monkeypatch.setattr(bundled, "BUNDLED", tmp_path)
    with pytest.raises(MarketDataError, match=r"mega6\.parquet: expected sha256 0e48b59250a2"):
        load_bundled("mega6")


def test_a_snapshot_keeps_all_it_knows_and_refuses_damage(tmp_path):
    prices = raw(
        CLEAN,
        requested=("A", "B", "C", "D"),
        failures=(Failure("D", "rate limited", "429"),),
        asof=datetime(2019, 2, 1, tzinfo=UTC),
        index=CLEAN.groupby("date")["close"].mean(),
    )
    folder = write_snapshot(prices, tmp_path / "s")
    again = read_snapshot(folder)
    assert again.content_hash == prices.content_hash
    assert again.tickers == ("A", "B", "C")
    for name in ("requested", "failures", "asof", "exchange", "bar"):
        assert getattr(again, name) == getattr(prices, name)
    written = (folder / "prices.parquet").stat().st_mtime_ns
    write_snapshot(prices, folder)
    assert (folder / "prices.parquet").stat().st_mtime_ns == written
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["failures"] == [{"tic": "D", "kind": "rate limited", "detail": "429"}]
    data = pd.read_parquet(folder / "prices.parquet")
    data.loc[5, "close"] *= 2
    data.to_parquet(folder / "prices.parquet")
    with pytest.raises(MarketDataError, match="a damaged DVC cache is checked out"):
        read_snapshot(folder)
    (folder / "prices.parquet").write_bytes(b"cut")
    with pytest.raises(MarketDataError, match="Fetch it again with `dvc pull`"):
        read_snapshot(folder)
    with pytest.raises(MarketDataError, match="not a readable snapshot"):
        read_snapshot(tmp_path / "none")


def test_snapshots_are_found_by_folder_by_hash_and_by_request(tmp_path):
    older = raw(CLEAN, asof=datetime(2019, 2, 1, tzinfo=UTC))
    newer = raw(clean_frame(11), asof=datetime(2019, 2, 2, tzinfo=UTC))
    for prices in (newer, older):
        write_snapshot(prices, tmp_path / prices.content_hash[:16], {"request": "q"})
    start = older.content_hash[:8]
    assert find_snapshot(start, tmp_path) == tmp_path / older.content_hash[:16]
    assert find_snapshot(str(tmp_path / older.content_hash[:16])).name == older.content_hash[:16]
    with pytest.raises(
        MarketDataError,
        match="'zzz': expected a snapshot's folder or the start of one's hash, 0 of",
    ):
        find_snapshot("zzz", tmp_path)
    assert newest(tmp_path, "q").content_hash == newer.content_hash
    assert newest(tmp_path, "other") is None


def test_what_a_killed_process_left_is_passed_over(tmp_path, caplog):
    prices = raw(CLEAN, asof=datetime(2019, 2, 1, tzinfo=UTC))
    write_snapshot(prices, tmp_path / "good", {"request": "q"})
    for name in (".half.1234", "damaged"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text('{"request": "q", "as')
    assert newest(tmp_path, "q").content_hash == prices.content_hash
    assert find_snapshot(prices.content_hash[:8], tmp_path).name == "good"
    assert "damaged: not a readable snapshot" in caplog.text
    assert "half" not in caplog.text


def test_equal_prices_of_another_request_are_found_by_both_facts_kept(tmp_path):
    write_snapshot(raw(CLEAN), tmp_path / "s", {"request": "one"})
    written = (tmp_path / "s" / "prices.parquet").stat().st_mtime_ns
    write_snapshot(
        raw(CLEAN, failures=(Failure("D", "delisted", "gone"),)), tmp_path / "s", {"request": "two"}
    )
    manifest = json.loads((tmp_path / "s" / "manifest.json").read_text())
    assert (manifest["request"], manifest["failures"][0]["tic"]) == ("two", "D")
    assert (tmp_path / "s" / "prices.parquet").stat().st_mtime_ns == written


def test_a_difference_names_rows_and_cells_beyond_tolerance():
    after = clean_frame(11)
    after = pd.concat([CLEAN, after[~after["date"].isin(CLEAN["date"])]], ignore_index=True)
    after.loc[4, "close"] *= 1.001
    after.loc[5, "close"] *= 1 + 1e-7
    after.loc[7, "volume"] *= 1.005
    after.loc[8, "volume"] *= 1.5
    found = difference(raw(CLEAN), raw(after))
    assert len(found.added) == 3
    assert len(found.removed) == 0
    assert found.changed[["tic", "column"]].to_numpy().tolist() == [["B", "close"], ["C", "volume"]]
    assert found.is_restatement
    lines = found.lines(most=1)
    assert lines[0].startswith("3 rows added: 2019-01-16")
    assert lines[1] == "2 cells changed:"
    assert "… and 1 more" in lines[-1]
    assert not difference(raw(CLEAN), raw(CLEAN)).is_restatement
    assert difference(raw(CLEAN), raw(CLEAN)).lines() == ["no difference"]
    paid = difference(
        raw(CLEAN.drop(columns=["dividend", "split"])), raw(CLEAN.assign(dividend=0.1))
    )
    assert set(paid.changed["column"]) == {"dividend", "split"}
    fewer = difference(raw(CLEAN), raw(CLEAN[CLEAN["tic"] != "B"]))
    assert fewer.lines()[0] == "lost tickers: B"
    assert fewer.is_restatement


def test_returns_agree_whatever_the_level():
    halved = CLEAN.assign(close=np.where(CLEAN["tic"] == "B", CLEAN["close"] / 2, CLEAN["close"]))
    assert returns_agree(raw(CLEAN), raw(halved))
    other = CLEAN.assign(close=CLEAN["close"].where(CLEAN.index != 13, CLEAN["close"] * 1.001))
    assert not returns_agree(raw(CLEAN), raw(other))


def test_the_content_hash_ignores_yahoos_adjusted_close_and_row_order_and_nothing_else():
    base = raw(CLEAN).content_hash
    assert raw(CLEAN.assign(adj_close=1.0)).content_hash == base
    assert raw(CLEAN.sample(frac=1, random_state=0)).content_hash == base
    no_actions = CLEAN.drop(columns=["dividend", "split"])
    assert raw(no_actions.assign(adj_close=1.0)).content_hash != raw(no_actions).content_hash
    for name in ("open", "volume", "dividend", "split"):
        assert raw(CLEAN.assign(**{name: CLEAN[name] + 1})).content_hash != base
    assert RawPrices(CLEAN.assign(tic=CLEAN["tic"] + "X"), "n", "XNYS").content_hash != base
    assert RawPrices(CLEAN, "other name", "XNYS").content_hash == base
    assert RawPrices(CLEAN, "made up", "XLON").content_hash != base
    assert raw(CLEAN, bar="1h").content_hash != base
    assert raw(CLEAN, requested=("B", "A", "C")).content_hash != base
    level = CLEAN.groupby("date")["close"].mean()
    moved = pd.Series(level.to_numpy(), index=level.index + pd.Timedelta(days=1))
    assert raw(CLEAN, index=level).content_hash != raw(CLEAN, index=moved).content_hash
