"""The Gymnasium faces: `gymnasium.make("podracer/StockTrading-v0")` and `gymnasium.make_vec(…)`.

Importing this module registers them; `gymnasium.make("podracer.envs.gym:podracer/StockTrading-v0")`
does both.
"""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from pydantic import ValidationError

from podracer.envs.declared import observation_tables
from podracer.envs.faces import StockTrading, flat_observations
from podracer.envs.settings import EnvSettings
from podracer.envs.spaces import single_spaces
from podracer.errors import ConfigError
from podracer.market.loading import load_raw
from podracer.market.market import Market, build_market, open_market
from podracer.market.quality import check
from podracer.market.settings import DataSettings, FeatureSettings
from podracer.market.sources.bundled import datasets
from podracer.market.synthetic import (
    HiddenRegimeSettings,
    PlantedSettings,
    hidden_regime_market,
    planted_market,
)
from podracer.market.windows import Window, WindowSettings, resolve_windows

WindowName = Literal["train", "selection", "lockbox"]
DEFAULT_PARTS = {"train": (0.0, 0.6), "selection": (0.6, 0.8), "lockbox": (0.8, 1.0)}
IDS: dict[str, dict[str, Any]] = {
    "podracer/StockTrading-v0": {"market": "us20"},
    "podracer/Planted-v0": {"market": "planted"},
    "podracer/HiddenRegime-v0": {
        "market": "hidden_regime",
        "env": {
            "action": {"cash_action": True, "no_trade_band": 0.0},
            "costs": {"commission_bps": 0},
            "rewards": {"log_return": {}},
            "observations": {"asset_features": {}},
        },
    },
}


@lru_cache(maxsize=8)
def _named_market(name: str) -> tuple[Market, dict[str, Window]]:
    if name == "planted":
        return _with_windows(planted_market(PlantedSettings()))
    if name == "hidden_regime":
        return _with_windows(hidden_regime_market(HiddenRegimeSettings()))
    bundled = {d.name: d for d in datasets()}
    if name not in bundled:
        known = ", ".join([*bundled, "planted", "hidden_regime"])
        raise ConfigError(
            f"market: there is no market {name!r}. Give a folder of data/features, or one of {known}."
        )
    raw, _ = load_raw(DataSettings(dataset=name))
    panel, _ = check(raw, DataSettings().quality)
    market = build_market(panel, FeatureSettings())
    windows = resolve_windows(
        WindowSettings(**bundled[name].windows), market.dates_D, market.meta["warmup_bars"]
    )
    return market, {w.name: w for w in windows}


def _with_windows(market: Market) -> tuple[Market, dict[str, Window]]:
    """Cut the sessions after the warm-up in three."""
    first, stop = market.meta["warmup_bars"], len(market.dates_D)
    windows = {}
    for name, (start, end) in DEFAULT_PARTS.items():
        rows = [first + int(part * (stop - first)) for part in (start, end)]
        windows[name] = Window(name, *rows)
    return market, windows


def _declared(env: Mapping[str, Any]) -> EnvSettings:
    try:
        return EnvSettings.model_validate(env)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(["env", *map(str, first["loc"])])
        raise ConfigError(
            f"{key}: {first['msg'].removeprefix('Value error, ')}, got {str(first['input'])[:80]!r}. "
            f"See `podracer env schema`."
        ) from error


def open_face(
    market: str | Path | Market = "us20",
    env: EnvSettings | Mapping[str, Any] | None = None,
    window: WindowName | Window = "train",
    windows: Mapping[str, Window] | None = None,
    num_envs: int = 1,
    cohorts: int | None = None,
    stack: int = 1,
) -> StockTrading:
    """Open environments on a market.

    Args:
        market: a bundled dataset, `planted`, `hidden_regime`, a folder of data/features, or a market.
            A folder or a market that is not bundled is cut into 60 % train, 20 % selection, 20 % lockbox.
        env: the declared environment; ours by default.
        window: its name, or its bars.
        windows: by name, in place of the market's own; features are scaled on `train`.
        num_envs: E.
        cohorts: B; every environment has sessions of its own if None. Fewer cohorts are faster.
        stack: observations side by side.

    Raises:
        ConfigError: if the market or the window is not known, or settings do not fit it.
    """
    if isinstance(market, Market):
        opened, own = _with_windows(market)
    elif Path(market).is_dir():
        opened, own = _with_windows(open_market(Path(market)))
    else:
        opened, own = _named_market(str(market))
    windows = windows or own
    settings = env if isinstance(env, EnvSettings) else _declared({} if env is None else env)
    if not isinstance(window, Window) and window not in windows:
        raise ConfigError(f"window: expected {', '.join(windows)} or a Window, got {window!r}.")
    chosen = windows[window] if isinstance(window, str) else window
    if chosen.name != "train":  # costs vary in training only
        fixed = settings.episode.model_copy(update={"cost_scales": (1.0,)})
        settings = settings.model_copy(update={"episode": fixed})
    if "train" not in windows:
        raise ConfigError(
            f"windows: expected a train window to scale on, got {', '.join(windows)}."
        )
    tables = observation_tables(opened, settings)
    observations = flat_observations(tables, tables.fit(windows["train"]))
    return StockTrading(opened, settings, chosen, observations, num_envs, cohorts, stack)


class TradingFace(gymnasium.Env[np.ndarray, np.ndarray]):
    """One account as a Gymnasium environment; see `open_face` for its arguments."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, **arguments: Any) -> None:
        self.render_mode = render_mode
        if {"num_envs", "cohorts"} & set(arguments):
            raise ConfigError(
                "num_envs and cohorts are for gymnasium.make_vec; make opens one account."
            )
        self.face = open_face(**arguments)
        self.observation_space, self.action_space = single_spaces(self.face.sizes)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self.face.reset(np.ones(1, dtype=bool), [self.np_random])
        return self.face.observation[0], self._info()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Advance one session; `truncated` means that the window ended: bootstrap the value."""
        reward, terminated, truncated = self.face.step(np.asarray(action)[None])
        return (
            self.face.observation[0],
            float(reward[0]),
            bool(terminated[0]),
            bool(truncated[0]),
            self._info(),
        )

    def _info(self) -> dict[str, Any]:
        return {
            "equity": float(self.face.equity_E[0]),
            "date": str(self.face.market.dates_D[self.face.session_E[0]]),
        }


class TradingVectorFace(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """Many accounts as a Gymnasium vector environment; see `open_face` for its arguments.

    An episode that ends is begun anew in the same step: the observation returned is the new
    episode's first, the true last one is `info["final_obs"]`.
    """

    metadata = {  # noqa: RUF012
        "render_modes": [],
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(self, num_envs: int = 1, render_mode: str | None = None, **arguments: Any) -> None:
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.face = open_face(num_envs=num_envs, **arguments)
        self.single_observation_space, self.single_action_space = single_spaces(self.face.sizes)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._generators: list[np.random.Generator] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin all episodes; cohort i begins as a single environment does with `seed` + i."""
        if seed is not None or not self._generators:
            first = int(np.random.default_rng().integers(2**31)) if seed is None else seed
            cohorts = range(self.face.num_cohorts)
            self._generators = [np.random.default_rng(first + b) for b in cohorts]
        self.face.reset(np.ones(self.num_envs, dtype=bool), self._generators)
        return self.face.observation, self._info()

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Advance one session."""
        outcome = self.face.step(np.asarray(actions))
        done_E = outcome.terminated_E | outcome.truncated_E
        info = self._info()
        if done_E.any():
            final = self.face.observation
            last = np.full(self.num_envs, None, dtype=object)
            for e in np.flatnonzero(done_E):
                last[e] = final[e]
            self.face.reset(done_E, self._generators)
            info = self._info() | {
                "final_obs": last,
                "_final_obs": done_E,
                "final_info": info,
                "_final_info": done_E,
            }
        return self.face.observation, *outcome, info

    def _info(self) -> dict[str, Any]:
        everyone = np.ones(self.num_envs, dtype=bool)
        return {"equity": self.face.equity_E, "_equity": everyone}


for _id, _kwargs in IDS.items():
    gymnasium.register(
        id=_id,
        entry_point=f"{__name__}:TradingFace",
        vector_entry_point=f"{__name__}:TradingVectorFace",
        kwargs=_kwargs,
    )
