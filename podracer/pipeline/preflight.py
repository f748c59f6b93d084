"""What can be known before a run is started."""

from dataclasses import dataclass
from pathlib import Path

from podracer.config import PodracerSettings
from podracer.envs.tables import Prices, require_prices
from podracer.errors import ConfigError, LeaderboardError
from podracer.files import check_writable
from podracer.market.features import warmup_bars
from podracer.market.loading import load_raw
from podracer.market.market import chosen_features, is_adjusted
from podracer.market.prices import PricePanel
from podracer.market.quality import check
from podracer.market.snapshot import SNAPSHOTS, write_snapshot
from podracer.market.windows import resolve_windows
from podracer.pipeline.runs import RUNS
from podracer.pods.device import resolve_device

MINIMUM_TICKERS = 2


@dataclass(frozen=True)
class Preflight:
    """What is known before anything is written: the prices' hash, and a remark on the device."""

    dataset_hash: str
    remark: str | None


def preflight(settings: PodracerSettings) -> Preflight:
    """Refuse what cannot work before a server is started or anything is written.

    Raises:
        DeviceError: if the device is not to be had.
        MarketDataError: if the prices are refused.
        ConfigError: if a feature, a window or the fill does not fit the prices.
        LeaderboardError: if the store or the folder of runs cannot be written.
    """
    remark = resolve_device(settings.pod.device)[1]
    for key, folder in (("store.folder", settings.store.folder), ("runs", RUNS)):
        _require_writable(key, folder)
    raw, facts = load_raw(settings.data)
    panel, _ = check(raw, settings.data.quality)
    if len(panel.tickers) < MINIMUM_TICKERS:
        raise ConfigError(
            f"data.tickers: {panel.name} has {len(panel.tickers)} ticker; agents divide capital "
            f"between tickers and are compared with equal weight, so give two or more."
        )
    assets, markets = chosen_features(panel, settings.features)
    warmup = warmup_bars((*assets, *markets), panel.dates_D)
    windows = resolve_windows(settings.windows, panel.dates_D, warmup)
    if windows.train.num_bars - 1 <= settings.pod.horizon_bars:
        raise ConfigError(
            f"windows.train: {windows.train.num_bars} bars are too few for a rollout of "
            f"{settings.pod.horizon_bars}. Lengthen the window or lower pod.horizon_bars."
        )
    _require_prices(settings, panel)
    if settings.data.source == "yahoo":
        # What was fetched is kept, so that the run itself need not ask again.
        write_snapshot(raw, SNAPSHOTS / panel.content_hash[:16], facts)
    return Preflight(panel.content_hash, remark)


def check_prices(settings: PodracerSettings) -> None:
    """Refuse an environment that its dataset cannot have; a source that has to be asked is not.

    Raises:
        MarketDataError: if the prices are refused.
        ConfigError: if fills or costs need what the dataset does not have.
    """
    if settings.data.source != "yahoo":
        raw, _ = load_raw(settings.data)
        _require_prices(settings, check(raw, settings.data.quality)[0])


def _require_prices(settings: PodracerSettings, panel: PricePanel) -> None:
    has_volumes = "volume" in panel.fields
    facts = Prices(panel.name, "open" in panel.fields, has_volumes, is_adjusted(panel))
    require_prices(settings.env, facts)


def _require_writable(key: str, folder: Path) -> None:
    """Refuse a folder that cannot be made or written to; nothing is created."""
    nearest = next(p for p in (folder.resolve(), *folder.resolve().parents) if p.exists())
    try:
        check_writable(nearest)
    except OSError as error:
        raise LeaderboardError(
            f"{key}: {folder} cannot be written ({error.strerror}). Free it, or choose another."
        ) from error
