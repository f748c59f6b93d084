"""The verdicts of Gymnasium's and Stable-Baselines3's checkers on every registered environment."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
from gymnasium.utils.env_checker import check_env

from podracer.envs.gym import IDS

MODES = ("weights", "notional", "discrete", "shares")
FINE, NOT_INSTALLED = "no warning", "not installed"


class Verdict(NamedTuple):
    """What the checkers said of one environment."""

    name: str
    mode: str
    gymnasium: str
    stable_baselines: str

    @property
    def is_fine(self) -> bool:
        """Whether neither checker objected."""
        return {self.gymnasium, self.stable_baselines} <= {FINE, NOT_INSTALLED}


def check_faces() -> list[Verdict]:
    """Check every registered environment in every action mode that its market allows."""
    verdicts = []
    for name, kwargs in IDS.items():
        for mode in MODES:
            if mode == "shares" and name == "podracer/StockTrading-v0":
                continue  # refused: the bundled prices are adjusted
            declared = kwargs.get("env", {})
            action = declared.get("action", {}) | {"mode": mode}
            env = gymnasium.make(name, env=declared | {"action": action}).unwrapped
            verdicts.append(
                Verdict(
                    name,
                    mode,
                    _verdict(lambda env=env: check_env(env, skip_render_check=True)),  # type: ignore[misc]
                    _stable_baselines(env),
                )
            )
    return verdicts


def _stable_baselines(env: Any) -> str:
    try:
        from stable_baselines3.common.env_checker import check_env as check
    except ImportError:
        return NOT_INSTALLED
    return _verdict(lambda: check(env, warn=True))


def _verdict(check: Callable[[], None]) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            check()
        except Exception as objection:
            return f"{type(objection).__name__}: {objection}".splitlines()[0]
    return FINE
