"""What a Gymnasium environment needs of ours: flat observations, actions, rewards, ends of episodes.

`podracer.envs.gym` puts Gymnasium's classes around it.

Shapes: D sessions, A assets, E environments in B cohorts, O columns of an observation, N actions,
S account inputs.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from podracer.envs.backends import Decision
from podracer.envs.declared import ObservationTables, rewards, terminations
from podracer.envs.equal_weight import close_growth
from podracer.envs.functors import AccountView, Earned
from podracer.envs.observation import account_width, decision
from podracer.envs.settings import ActionSettings, EnvSettings
from podracer.envs.spaces import Sizes, num_actions
from podracer.envs.tables import price_tables
from podracer.envs.trading import TradingEnv
from podracer.errors import ConfigError
from podracer.market.market import UNITS_PER_DOLLAR, Market
from podracer.market.scaling import LARGEST_SCORE, Scaler
from podracer.market.windows import Window


@dataclass(frozen=True)
class FlatObservations:
    """Flat observations: account, asset columns asset by asset, market columns; float32.

    Attributes:
        shared_DO: what all accounts see of a session, scaled and clipped.
        tables: the declared columns.
        limit: every column is clipped to ± this.
    """

    shared_DO: np.ndarray
    tables: ObservationTables
    limit: float
    num_account: int

    @property
    def width(self) -> int:
        """O."""
        return self.num_account + self.shared_DO.shape[1]

    def at(self, session_B: np.ndarray, view: AccountView) -> np.ndarray:
        """Return what E accounts, in blocks of one session each, see after its close (E, O)."""
        num_envs = len(view.equity_E)
        seen_BEO = np.empty((len(session_B), num_envs // len(session_B), self.width), np.float32)
        # Written block by block: the row of a session is read once.
        seen_BEO[:, :, self.num_account :] = self.shared_DO[session_B][:, None]
        seen_EO = seen_BEO.reshape(num_envs, self.width)
        account_SE = np.clip(self.tables.account.columns(view), -self.limit, self.limit)
        seen_EO[:, : self.num_account] = account_SE.T
        return seen_EO

    def sizes(self, stack: int, action: ActionSettings) -> Sizes:
        """Return the sizes of an environment that gives so many of these side by side."""
        actions = num_actions(self.tables.asset_DAK.shape[1], action)
        return Sizes(self.limit, stack * self.width, actions, action.mode)


def flat_observations(tables: ObservationTables, scaler: Scaler) -> FlatObservations:
    """Scale and flatten the declared observations of a market."""
    num_sessions, num_assets = tables.asset_DAK.shape[:2]
    asset_DO = tables.asset_DAK.reshape(num_sessions, -1)
    shared_DO = np.concatenate([asset_DO, scaler.apply(tables.market_DF)], axis=1)
    limit = max(LARGEST_SCORE, num_assets / 2)
    return FlatObservations(
        np.clip(shared_DO, -limit, limit),
        tables,
        limit,
        account_width(tables.account, num_assets),
    )


class Outcome(NamedTuple):
    """What a step brought to E environments."""

    reward_E: np.ndarray
    terminated_E: np.ndarray
    truncated_E: np.ndarray


def decide(action_EN: np.ndarray, visible_AE: np.ndarray, settings: EnvSettings) -> Decision:
    """Turn the actions of a face into a decision.

    Args:
        action_EN: mode weights: scores in [-1, 1], a column for each asset and maybe one for cash;
            modes notional and shares: orders in [-1, 1]; discrete: 0 to sell, 1 to hold, 2 to buy.
            Values outside are clipped.
        visible_AE: which assets trade at the close.
        settings: say what actions mean.
    """
    action = settings.action
    num_assets, num_envs = visible_AE.shape
    if action.mode == "discrete":
        orders_AE = np.asarray(action_EN, dtype=np.float32).T - 1.0
        return decision(np.ascontiguousarray(orders_AE), np.ones(num_envs), settings)
    ordered_NE = np.ascontiguousarray(np.asarray(action_EN, dtype=np.float32).T)
    clipped_NE = np.clip(ordered_NE, -1.0, 1.0)
    if action.mode != "weights":
        return decision(clipped_NE, np.ones(num_envs), settings)
    can_hold_NE = np.ones(clipped_NE.shape, dtype=bool)
    can_hold_NE[:num_assets] = visible_AE
    share_NE = np.exp(np.float32(action.gain) * clipped_NE) * can_hold_NE
    target_AE = share_NE[:num_assets] / np.maximum(share_NE.sum(0), np.float32(1e-30))
    return decision(target_AE, np.full(num_envs, action.speed), settings)


class StockTrading:
    """E environments with flat observations, in cohorts that share their sessions; no autoreset.

    Rewards are known at the mark: the reward of a step is what the account earned from the close at
    which the agent decided to the next close.
    """

    def __init__(
        self,
        market: Market,
        settings: EnvSettings,
        window: Window,
        observations: FlatObservations,
        num_envs: int = 1,
        cohorts: int | None = None,
        stack: int = 1,
    ) -> None:
        """Open the environments; `reset` must come first.

        Args:
            market: prices and features.
            settings: the declared environment.
            window: bars to trade.
            observations: what accounts see, scaled on the training window.
            num_envs: E.
            cohorts: B; every environment has sessions of its own if None.
            stack: observations of this many sessions are given side by side, the newest last.

        Raises:
            ConfigError: if the numbers do not fit each other or the window.
        """
        self.num_cohorts = num_envs if cohorts is None else cohorts
        if num_envs < 1 or self.num_cohorts < 1:
            raise ConfigError(
                f"num_envs and cohorts: expected 1 or more, got {num_envs} and {self.num_cohorts}."
            )
        if num_envs % self.num_cohorts:
            raise ConfigError(
                f"num_envs {num_envs} cannot be divided into {self.num_cohorts} cohorts. "
                f"Give a divisor."
            )
        last_start = window.stop - 1 - (settings.episode.sessions or 1)
        if last_start < window.start:
            raise ConfigError(
                f"env.episode.sessions: {settings.episode.sessions} steps do not fit window "
                f"{window.name!r} of {window.stop - window.start} bars. Shorten the episode."
            )
        if stack < 1:
            raise ConfigError(f"stack: expected 1 or more observations, got {stack}.")
        self.market, self.settings, self.window = market, settings, window
        self.num_envs = num_envs
        self.observations = observations
        self.sizes = observations.sizes(stack, settings.action)
        self._starts = window.start, last_start
        tables = price_tables(market, settings, settings.episode.cost_scales)
        self._block = num_envs // self.num_cohorts
        self.env = TradingEnv(tables, settings, window.stop, self.num_cohorts, self._block)
        self._growth_D = close_growth(tables)
        self._reward = rewards(settings, num_envs)
        self._termination = terminations(settings, num_envs)
        self._end_B = np.zeros(self.num_cohorts, dtype=np.int64)
        self._is_over_E = np.ones(num_envs, dtype=bool)
        self._previous_AE = np.zeros((market.num_assets, num_envs))
        self._stacked_EKO = np.zeros((num_envs, stack, self.observations.width), dtype=np.float32)

    @property
    def observation(self) -> np.ndarray:
        """What the accounts see now (E, stack · O)."""
        return self._stacked_EKO.reshape(self.num_envs, -1)

    @property
    def equity_E(self) -> np.ndarray:
        """Dollars."""
        return self.env.equity_E / UNITS_PER_DOLLAR

    @property
    def session_E(self) -> np.ndarray:
        """The session after whose close each environment acts."""
        return np.repeat(self.env.session_B, self._block)

    def reset(self, is_new_E: np.ndarray, generators: list[np.random.Generator]) -> None:
        """Begin new episodes.

        A cohort of which all begin anew gets new sessions and a new cost scenario; a single
        environment begins with new cash on its cohort's session.

        Args:
            is_new_E: which.
            generators: one for each cohort, so that an environment does not depend on its number of
                neighbours.
        """
        is_new_B = is_new_E.reshape(self.num_cohorts, -1).all(1)
        session_B, scenario_B = self.env.session_B.copy(), self.env.scenario_B.copy()
        first, last = self._starts
        for b in np.flatnonzero(is_new_B):
            session_B[b] = first
            if self.settings.episode.start == "uniform":
                session_B[b] = generators[b].integers(first, last + 1)
            scenario_B[b] = generators[b].integers(0, len(self.settings.episode.cost_scales))
        length = self.settings.episode.sessions
        ends_B = np.full(self.num_cohorts, self.window.stop - 1)
        if length is not None:
            ends_B = np.minimum(ends_B, session_B + length)
        self._end_B = np.where(is_new_B, ends_B, self._end_B)
        self.env.reset(session_B, None, scenario_B, is_new_E)
        self._is_over_E = self._is_over_E & ~is_new_E
        self._reward.reset(is_new_E)
        self._termination.reset(is_new_E)
        self._previous_AE = np.where(is_new_E, 0.0, self._previous_AE)
        self._stacked_EKO = self._stacked_EKO.copy()
        self._stacked_EKO[is_new_E] = self._seen()[is_new_E, None]

    def step(self, action_EN: np.ndarray) -> Outcome:
        """Advance every environment by one session.

        Raises:
            ValueError: if an episode has ended, or an action is not one.
        """
        self._check(action_EN)
        session_B = self.env.session_B
        visible_BA = self.env.tables.visible_DA[session_B]
        visible_AE = np.repeat(visible_BA.T, self._block, axis=1)
        decided = decide(action_EN, visible_AE, self.settings)
        before_E = self.env.equity_E
        self.env.step(decided)
        trade = self.env.trade
        self._previous_AE = decided.wanted_AE
        growth_E = np.repeat(self._growth_D[session_B], self._block)
        earned = Earned(
            before_E,
            self.env.equity_E,
            growth_E,
            self.env.initial_value,
            lambda: trade.costs().traded_E,
        )
        # A new array each step: what was handed out stays what it was.
        seen_E1O, older = self._seen()[:, None], self._stacked_EKO[:, 1:]
        self._stacked_EKO = np.concatenate([older, seen_E1O], axis=1) if older.size else seen_E1O
        outcome = Outcome(
            self._reward(earned),
            self._termination(self._view()),
            np.repeat(self.env.session_B >= self._end_B, self._block),
        )
        self._is_over_E = outcome.terminated_E | outcome.truncated_E
        return outcome

    def _check(self, action_EN: np.ndarray) -> None:
        if self._is_over_E.any():
            raise ValueError(
                f"environment {int(np.argmax(self._is_over_E))}: its episode has ended or not begun; "
                f"call reset first"
            )
        expected = (self.num_envs, self.sizes.num_actions)
        if action_EN.shape != expected:
            raise ValueError(f"expected actions of shape {expected}, got {action_EN.shape}")
        is_discrete = self.settings.action.mode == "discrete"
        is_fine_EN = np.isin(action_EN, (0, 1, 2)) if is_discrete else np.isfinite(action_EN)
        if not is_fine_EN.all():
            e, n = np.argwhere(~is_fine_EN)[0]
            raise ValueError(
                f"action {int(n)} of environment {int(e)}: expected "
                f"{'0, 1 or 2' if is_discrete else 'a number'}, got {action_EN[e, n]}"
            )

    def _view(self) -> AccountView:
        env = self.env
        return AccountView(env.weights_AE, env.equity_E, env.initial_value, self._previous_AE)

    def _seen(self) -> np.ndarray:
        return self.observations.at(self.env.session_B, self._view())
