"""Small populations with differing rows, for the tests of networks and algorithms."""

import torch

from podracer.agents import algorithms
from podracer.agents.networks import Inputs
from podracer.agents.parameters import Dimensions, initial_weights, layout
from podracer.agents.population import Population
from podracer.agents.settings import Hyperparameters, NetworkSettings, ReplaySettings

P, L, E = 3, 4, 5
CONTINUOUS = Dimensions(3, 2, 5, 4, 3)
WITH_CASH = CONTINUOUS._replace(num_actions=4)
DISCRETE = CONTINUOUS._replace(num_choices=3)
NO_MARKET = Dimensions(0, 0, 0, 4, 2)
NO_MARKET_DISCRETE = Dimensions(0, 0, 0, 4, 1, 3)
FULL = NetworkSettings(head_hidden=4, mlp_hidden=8, critic_hidden=6)
HEAD = NetworkSettings(critic_hidden=6)
STACK, GRU, LSTM = (
    NetworkSettings(mlp_hidden=8, critic_hidden=6, memory=m, memory_bars=3, memory_hidden=4)
    for m in ("stack", "gru", "lstm")
)


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def population(algorithm, sizes=CONTINUOUS, network=FULL, num_agents=P, replay=None, scale=1.0):
    """Agents whose hyper-parameters and weights differ."""
    anatomy = algorithms.anatomy(algorithm, sizes, replay or ReplaySettings())
    made = layout(network, sizes, anatomy)
    weights = torch.stack(
        [
            initial_weights(made, torch.Generator().manual_seed(i), 0.4 + 0.2 * i)
            for i in range(num_agents)
        ]
    )
    # The last layers start near zero; move everything to where it matters.
    weights += scale * 0.3 * numbers(*weights.shape, seed=99)
    hyper = {
        name: torch.tensor([getattr(Hyperparameters(), name)] * num_agents)
        for name in Hyperparameters.model_fields
    }
    hyper["clip"] = torch.linspace(0.1, 0.3, num_agents)
    hyper["entropy_bonus"] = torch.linspace(0.0, 0.05, num_agents)
    hyper["discount"] = torch.linspace(0.8, 0.99, num_agents)
    hyper["target_noise"] = torch.linspace(0.1, 0.5, num_agents)
    return Population(weights, made, hyper, algorithms.groups(algorithm))


def inputs(sizes=CONTINUOUS, num_agents=P, num_sessions=L, num_envs=E, seed=9, bars=1):
    """What agents of a market, or of none, may see; with `bars` two stretches and rows before them."""
    rows = num_sessions if sizes.num_assets else 1
    return Inputs(
        numbers(rows, sizes.num_assets, sizes.num_asset_features, seed=seed),
        numbers(rows, sizes.num_market_features, seed=seed + 1),
        numbers(num_agents, rows, num_envs, sizes.num_account_inputs, seed=seed + 2),
        numbers(2, bars - 1 + rows // 2, sizes.num_market_features, seed=seed + 3)
        if bars > 1
        else None,
    )
