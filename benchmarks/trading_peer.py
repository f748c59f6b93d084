"""The market and the environment that pods and their peers are timed on.

30 stocks, 2,500 sessions, 9 market features a stock, FinRL's 301-wide observation, orders as fractions
of equity. Peers get our environment behind their own interface, with the whole observation written.

Shapes: N accounts, A assets, O columns of an observation.
"""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv
from torch.cpu import get_capabilities

from podracer.agents.settings import WIDE, Hyperparameters, NetworkSettings
from podracer.envs.backends import Decision
from podracer.envs.equal_weight import fill_growth
from podracer.envs.observation import decision, observe, wanted
from podracer.envs.settings import ActionSettings, EnvSettings
from podracer.envs.tables import price_tables
from podracer.envs.trading import TradingEnv
from podracer.market.market import Market
from podracer.market.scaling import fit_scaler
from podracer.market.synthetic import PlantedSettings, planted_market
from podracer.market.windows import Window
from podracer.pods.market_rollouts import MarketRollouts
from podracer.pods.settings import PodSettings
from podracer.pods.spec import AgentSpec, PopulationSpec
from podracer.pods.trainer import Trainer

A, SESSIONS = 30, 2500
WINDOW = Window("train", 0, SESSIONS)
REWARD_SCALE = 100.0
SETTINGS = EnvSettings(
    action=ActionSettings(mode="notional"),
    rewards={"log_return": {}},
    observations={"cash": {}, "holdings": {}, "market_features": {}},
)


def indicators_market() -> Market:
    """Made-up prices with nine indicators of each stock as market features."""
    market = planted_market(PlantedSettings(num_sessions=SESSIONS, num_assets=A))
    rng = np.random.default_rng(1)
    features_DF = rng.normal(size=(SESSIONS, 9 * A)).astype(np.float32)
    meta = market.meta | {"market_features": [f"f{k}" for k in range(9 * A)]}
    return replace(market, market_features_DF=features_DF, meta=meta)


def pod(
    market: Market,
    num_agents: int,
    settings: PodSettings,
    hyperparameters: Hyperparameters | None = None,
) -> Trainer:
    """A population on the market."""
    env = SETTINGS
    rollouts = MarketRollouts(
        observe(market, fit_scaler(market.market_features_DF, WINDOW), env),
        price_tables(market, env),
        env,
        settings,
        WINDOW,
        num_agents,
    )
    given = hyperparameters or Hyperparameters(learning_rate=3e-4, discount=0.99)
    spec = PopulationSpec(
        name="pod",
        seed=1,
        agents=tuple(AgentSpec(name=f"a{i}", hyperparameters=given) for i in range(num_agents)),
        settings=settings,
        folder=Path(tempfile.mkdtemp()),
    )
    return Trainer(spec, rollouts)


def network(
    width: int, *, is_off_policy: bool = False, precision: str = "float32"
) -> NetworkSettings:
    """Two layers of a width for actor and critic."""
    return NetworkSettings(
        head=False,
        mlp_hidden=width,
        critic_hidden=width,
        activation="relu" if is_off_policy else "tanh",
        precision=precision,
    )


def precisions(width: int) -> tuple[str, ...]:
    """Return what the hidden products of a width can be made in, fast, on this processor."""
    has_bfloat16 = {"avx512_bf16", "amx_bf16"} & {k for k, v in get_capabilities().items() if v}
    return ("float32", "bfloat16") if has_bfloat16 and width >= WIDE else ("float32",)


class PeerEnv:
    """N accounts in cohorts that share their sessions, with whole observations; restarts together."""

    def __init__(
        self,
        market: Market,
        cohorts: int,
        envs_per_cohort: int,
        horizon: int,
        settings: EnvSettings = SETTINGS,
        window: Window = WINDOW,
    ) -> None:
        self.num_envs = cohorts * envs_per_cohort
        self.num_assets = market.num_assets
        self._settings, self._window = settings, window
        self._tables = price_tables(market, settings)
        self._env = TradingEnv(self._tables, settings, window.stop, cohorts, envs_per_cohort)
        self._shape = (cohorts, envs_per_cohort)
        self._horizon = horizon
        scaler = fit_scaler(market.market_features_DF, window)
        self._observations = observe(market, scaler, settings)
        self._market_DF = self._observations.market_DF.numpy()
        self._growth_D = fill_growth(self._tables)
        self._rng = np.random.default_rng(0)
        self.width = 1 + self.num_assets + self._market_DF.shape[1]

    def reset(self) -> np.ndarray:
        """Begin at random sessions; returns (N, O)."""
        cohorts, size = self._shape
        last = self._window.stop - self._horizon - 1
        start = self._rng.integers(self._window.start, last, cohorts)
        drawn_AC = self._rng.dirichlet(np.ones(self.num_assets), cohorts).T
        weights_AE = np.repeat(drawn_AC, size, axis=1)
        self._env.reset(start, weights_AE)
        self._left = self._horizon
        return self._seen()

    def step(self, action_NA: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool]:
        """Trade one session; returns observations (N, O), rewards (N,) and whether all are done.

        The reward is that of this very decision: from its fill to the next fill, as a pod's is.
        """
        growth_B = self._growth_D[self._env.session_B]
        before_N = self._env.step(self.decision(action_NA)).value_before_E
        reward_N = np.log(self._env.next_fill_value_E() / before_N)
        if "excess" in self._settings.rewards.chosen():
            reward_N = reward_N - np.repeat(np.log(growth_B), self._shape[1])
        self._left -= 1
        done = self._left == 0
        self.last = self._seen()
        seen = self.reset() if done else self.last
        return seen, (REWARD_SCALE * reward_N).astype(np.float32), done

    def decision(self, action_NA: np.ndarray) -> Decision:
        """Return what actions mean, as the pods' do."""
        action = self._settings.action
        scores = torch.from_numpy(np.asarray(action_NA, dtype=np.float32))
        visible = torch.ones(self.num_assets, dtype=torch.bool)
        gain = torch.tensor(action.gain if action.mode == "weights" else 1.0)
        wanted_AN = np.ascontiguousarray(wanted(scores, gain, visible, action).numpy().T)
        speed_N = np.full(len(action_NA), action.speed)
        return decision(wanted_AN, speed_N, self._settings)

    def _seen(self) -> np.ndarray:
        rows_NF = np.repeat(self._market_DF[self._env.session_B], self._shape[1], axis=0)
        return self.row(self._env.weights_AE(), rows_NF)

    def row(self, weights_AN: np.ndarray, rows_NF: np.ndarray) -> np.ndarray:
        """Return whole observations of accounts."""
        return np.concatenate([self._observations.account(weights_AN).numpy(), rows_NF], axis=1)

    def market_row(self, session: int) -> np.ndarray:
        """Return what is seen of the market on a session (1, F)."""
        return self._market_DF[session][None]


class StableBaselinesEnv(VecEnv):
    """The same behind Stable-Baselines3's interface."""

    def __init__(self, env: PeerEnv) -> None:
        observation = spaces.Box(-np.inf, np.inf, (env.width,))
        # Wide: scores are not clipped on our side either.
        super().__init__(env.num_envs, observation, spaces.Box(-10, 10, (env.num_assets,)))
        self._env = env
        self._infos: list[dict[str, Any]] = [{} for _ in range(env.num_envs)]

    def reset(self) -> np.ndarray:
        """Begin."""
        return self._env.reset()

    def step_async(self, actions: np.ndarray) -> None:
        """Keep the actions."""
        self._actions = actions

    def step_wait(self) -> Any:
        """Trade."""
        seen, reward, done = self._env.step(self._actions)
        infos = self._infos
        if done:
            # The window was cut off: its end is to be bootstrapped, as a pod does.
            infos = [
                {"TimeLimit.truncated": True, "terminal_observation": row} for row in self._env.last
            ]
        return seen, reward, np.full(self.num_envs, done), infos

    def close(self) -> None:
        """Nothing to close."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Nothing of interest."""
        return [None] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Nothing to set."""

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> Any:
        """Nothing to call."""

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """It is not."""
        return [False] * self.num_envs
