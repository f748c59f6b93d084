"""Rollouts of a population on a market: cohorts on random stretches of the training window.

Shapes: P agents, C cohorts, T decisions, U = T + 1, E environments of a cohort, A assets, N actions,
S account inputs.
"""

import numpy as np
import torch
from torch import Tensor

from podracer.agents.algorithms import best_actions
from podracer.agents.memory import remember
from podracer.agents.networks import Inputs, actor
from podracer.envs.backends import Decision
from podracer.envs.equal_weight import fill_growth
from podracer.envs.observation import Observations, decision, target_weights, wanted
from podracer.envs.settings import EnvSettings
from podracer.envs.tables import PriceTables
from podracer.envs.trading import TradingEnv
from podracer.market.windows import Window
from podracer.pods.earnings import Earnings
from podracer.pods.experience import Experience, Explorers
from podracer.pods.settings import PodSettings

# Rewards of a session are about 1e-2; critics learn best on targets of order one.
REWARD_SCALE = 100.0
EQUAL, SPREAD, OWN = range(3)


class MarketRollouts:
    """Each rollout visits C stretches of T sessions, with E accounts of each agent on every one."""

    has_cohorts = True

    def __init__(
        self,
        observations: Observations,
        tables: PriceTables,
        env: EnvSettings,
        settings: PodSettings,
        window: Window,
        num_agents: int,
    ) -> None:
        self.sizes = observations.sizes
        self.steps = settings.cohorts * settings.horizon_bars * settings.envs_per_cohort
        self._shape = (settings.cohorts, settings.horizon_bars, settings.envs_per_cohort)
        self._num_agents = num_agents
        self._observations = observations
        self._tables = tables
        self._settings = env
        self._memory_bars = 1 if settings.network.memory == "none" else settings.network.memory_bars
        self._window = window
        num_accounts = num_agents * settings.envs_per_cohort
        self._env = TradingEnv(tables, env, window.stop, settings.cohorts, num_accounts)
        self._growth_D = fill_growth(tables)

    def inputs(self, session_CT: Tensor, account_PLES: Tensor | None) -> Inputs:
        """Return what networks see on L = C·T sessions, but for what they remember."""
        return self._observations.inputs(session_CT, account_PLES, self._memory_bars)

    def collect(self, agents: Explorers) -> Experience:
        """Let all agents trade; rewards are credited from fill to fill."""
        C, T, E = self._shape
        P = self._num_agents
        start_C = torch.randint(
            self._window.start, self._window.stop - T - 1, (C,), generator=agents.pod_generator
        )
        session_CT = start_C[:, None] + torch.arange(T)
        noise = agents.noise(self._shape, is_paired=True)
        holdings_AE = self._initial_holdings(start_C, agents)
        self._env.reset(start_C.numpy(), holdings_AE, self._scenarios(agents.pod_generator))
        growth_TE = np.repeat(self._growth_D[session_CT.numpy().T], P * E, axis=1)
        earnings = Earnings(self._env, self._settings, growth_TE)
        decide = self._step_by_step if "mlp_out" in agents.weights else self._at_once
        output, action, account = decide(agents, session_CT, noise, earnings)
        earnings.finish()
        is_open_PCUE = self._by_agent(earnings.is_open_TE)
        return Experience(
            session_CT,
            noise,
            output,
            action,
            account,
            None,
            REWARD_SCALE * self._by_agent(earnings.reward_TE),
            is_open_PCUE[:, :, :-1],
            is_open_PCUE[:, :, 1:],
            is_open_PCUE[:, :, 1:],
        )

    def _at_once(
        self, agents: Explorers, session_CT: Tensor, noise: Tensor, earnings: Earnings
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Decide everything before trading: no actor looks at its account, a critic may."""
        C, T, _ = self._shape
        output, _ = actor(agents.weights, self.inputs(session_CT, None))
        output = output.reshape(self._num_agents, C, T, *output.shape[2:])
        action = agents.exploration.draw(output, noise, agents.weights, agents.steps)
        account = self._no_account() if agents.weights.reads_account else None
        wanted_TAE = self._wanted(action, session_CT, agents.hyper["gain"])
        speed_E = self._speeds(agents)
        for t in range(T):
            if account is not None:
                account[:, :, t] = self._account()
            self._trade(t, wanted_TAE[t], speed_E, earnings)
        if account is not None:
            account[:, :, T] = self._account()
        return output, action, account

    def _step_by_step(
        self, agents: Explorers, session_CT: Tensor, noise: Tensor, earnings: Earnings
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Decide after each session on what the account has become."""
        T = self._shape[1]
        outputs, actions = [], []
        account = self._no_account()
        speed_E = self._speeds(agents)
        whole = remember(agents.weights, self.inputs(session_CT, None))
        for t in range(T):
            now = self._account()
            account[:, :, t] = now
            output, _ = actor(agents.weights, _at(whole, t, T, now))
            outputs.append(output[:, :, None])
            drawn = noise[:, :, t : t + 1]
            actions.append(
                agents.exploration.draw(outputs[-1], drawn, agents.weights, agents.steps)
            )
            wanted_TAE = self._wanted(actions[-1], session_CT[:, t : t + 1], agents.hyper["gain"])
            self._trade(t, wanted_TAE[0], speed_E, earnings)
        account[:, :, T] = self._account()
        return torch.cat(outputs, dim=2), torch.cat(actions, dim=2), account

    def _trade(
        self, t: int, wanted_AE: np.ndarray, speed_E: np.ndarray, earnings: Earnings
    ) -> None:
        made: Decision = decision(wanted_AE, speed_E, self._settings)
        earnings.note(t, self._env.step(made).value_before_E, wanted_AE)

    def _scenarios(self, generator: torch.Generator) -> np.ndarray:
        """Draw each cohort's cost scenario; nothing is drawn where there is only one."""
        num_scenarios, C = len(self._settings.episode.cost_scales), self._shape[0]
        if num_scenarios == 1:
            return np.zeros(C, dtype=np.int64)
        return torch.randint(0, num_scenarios, (C,), generator=generator).numpy()

    def _initial_holdings(self, start_C: Tensor, agents: Explorers) -> np.ndarray:
        """Holdings that a cohort's accounts start from (A, C·P·E): the same for all of an agent's.

        Equal weights, a random spread, or where the agent would like to be (mode weights), so that it
        learns from portfolios that it meets.
        """
        C, _, E = self._shape
        P, A = self._num_agents, self._tables.num_assets
        kind_C = torch.randint(0, 3, (C,), generator=agents.pod_generator)
        spread_CA = -torch.rand(C, A, generator=agents.pod_generator).clamp(min=1e-7).log()
        visible_CA = self._observations.visible_DA[start_C]
        base_CA = torch.where((kind_C == SPREAD)[:, None], spread_CA, torch.ones(C, A)) * visible_CA
        base_CA = base_CA / base_CA.sum(1, keepdim=True).clamp(min=1e-9)
        own_PCA = base_CA.expand(P, C, A)
        if self._settings.action.mode == "weights":
            in_cash_ES = self._observations.account(np.zeros((A, 1)))
            in_cash = in_cash_ES.expand(P, C, 1, self.sizes.num_account_inputs)
            seen = remember(agents.weights, self.inputs(start_C[:, None], in_cash))
            output, _ = actor(agents.weights, seen)
            scores = best_actions(agents.algorithm, self.sizes, output[:, :, 0])
            own_PCA = target_weights(scores, agents.hyper["gain"].view(P, 1, 1), visible_CA)
        weights_PCA = torch.where((kind_C == OWN)[:, None], own_PCA, base_CA)
        weights_ACPE = weights_PCA.permute(2, 1, 0)[..., None].expand(A, C, P, E)
        return weights_ACPE.reshape(A, -1).double().numpy()

    def _wanted(self, action_PCTEN: Tensor, session_CT: Tensor, gain_P: Tensor) -> np.ndarray:
        """Turn actions into the environment's layout (T, A, C·P·E)."""
        visible_CTA = self._observations.visible_DA[session_CT]
        gain = gain_P.view(-1, 1, 1, 1, 1)
        wanted_PCTEA = wanted(action_PCTEN, gain, visible_CTA[:, :, None, :], self._settings.action)
        return wanted_PCTEA.permute(2, 4, 1, 0, 3).contiguous().flatten(2).numpy()

    def _speeds(self, agents: Explorers) -> np.ndarray:
        C, _, E = self._shape
        speed_P = agents.hyper["speed"].double()
        return speed_P[None, :, None].expand(C, self._num_agents, E).reshape(-1).numpy()

    def _no_account(self) -> Tensor:
        C, T, E = self._shape
        return torch.zeros(self._num_agents, C, T + 1, E, self.sizes.num_account_inputs)

    def _account(self) -> Tensor:
        """Return the account inputs of every environment (P, C, E, S)."""
        C, _, E = self._shape
        inputs_ES = self._observations.account(self._env.weights_AE())
        return inputs_ES.reshape(C, self._num_agents, E, -1).transpose(0, 1)

    def _by_agent(self, values_TE: np.ndarray) -> Tensor:
        """Turn the environment's layout (T, C·P·E) into (P, C, T, E), float32."""
        C, _, E = self._shape
        values_TCPE = torch.from_numpy(values_TE.astype(np.float32)).view(
            -1, C, self._num_agents, E
        )
        return values_TCPE.permute(2, 1, 0, 3).contiguous()


def _at(whole: Inputs, t: int, num_decisions: int, account_PCES: Tensor) -> Inputs:
    """Return the t-th session of each stretch."""
    rows = slice(t, None, num_decisions)
    memory_PLM = whole.memory_PLM
    return Inputs(
        whole.asset_LAK[rows],
        whole.market_LF[rows],
        account_PCES,
        memory_PLM=None if memory_PLM is None else memory_PLM[:, rows],
    )
