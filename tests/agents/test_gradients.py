"""Closed-form gradients of every algorithm and parameter against autograd over the same forward pass."""

import pytest
import torch

from podracer.agents import a2c, actor_critic, critics, ddpg, dqn, ppo, sac, td3
from podracer.agents.actor_critic import loss, write_gradients
from podracer.agents.algorithms import distribution, exploration
from podracer.agents.batch import Minibatch
from podracer.agents.memory import remember
from podracer.agents.networks import actor
from podracer.agents.parameters import Parameters
from podracer.agents.settings import NetworkSettings, ReplaySettings
from tests.agents.populations import (
    CONTINUOUS,
    DISCRETE,
    FULL,
    GRU,
    HEAD,
    LSTM,
    NO_MARKET,
    NO_MARKET_DISCRETE,
    STACK,
    WITH_CASH,
    P,
    inputs,
    numbers,
    population,
)

RELATIVE = 1e-5
RELU = NetworkSettings(head_hidden=4, mlp_hidden=8, critic_hidden=6, activation="relu")
NO_HEAD = NetworkSettings(head=False, mlp_hidden=8, critic_hidden=6)
MLP = NetworkSettings(mlp_hidden=8, critic_hidden=6)


def require_equal(learnt, of_flat, names=("",)):
    """Compare the written gradients with autograd's, parameter by parameter and agent by agent."""
    leaf = learnt.weights.flat_PW.clone().requires_grad_()
    parameters = Parameters(leaf, learnt.weights.layout)
    with torch.enable_grad():
        (flat,) = torch.autograd.grad(of_flat(parameters).sum(), leaf)
    expected = Parameters(flat, learnt.weights.layout)
    compared = [n for n in expected if n.startswith(names)]
    assert compared
    for name in compared:
        for agent in range(len(flat)):
            found, wanted = learnt.gradients[name][agent], expected[name][agent]
            scale = float(wanted.norm())
            assert scale > 0 or float(found.norm()) == 0, (name, agent)
            assert float((found - wanted).norm()) <= RELATIVE * max(scale, 1e-3), (name, agent)


def batch(learnt, sizes, seen):
    """Something that a slightly different policy has done."""
    chances = distribution(sizes)
    with torch.no_grad():
        old = Parameters(learnt.weights.flat_PW * 0.97, learnt.weights.layout)
        output, _ = actor(old, remember(old, seen))
        P_, L_, E_ = seen.account_PLES.shape[:3]
        noise = torch.stack(
            [chances.draw_noise((L_, E_), torch.Generator().manual_seed(50 + i)) for i in range(P_)]
        )
        action = chances.draw(output, noise, old, 0)
        taken = chances.taken(output, noise, action, old)
    shape = (P_, L_, E_)
    return chances, Minibatch(
        torch.zeros(L_, dtype=torch.long),
        taken,
        seen.account_PLES,
        numbers(*shape, seed=7),
        numbers(*shape, seed=8) if "critic_out" in learnt.weights else None,
        (numbers(*shape, seed=9) > -0.5).float(),
    )


@pytest.mark.parametrize("algorithm", [ppo, a2c])
@pytest.mark.parametrize(
    ("sizes", "network"),
    [
        (CONTINUOUS, FULL),
        (CONTINUOUS, RELU),
        (CONTINUOUS, HEAD),
        (CONTINUOUS, NetworkSettings(head_hidden=4)),
        (WITH_CASH, FULL),
        (WITH_CASH, NO_HEAD),
        (DISCRETE, FULL),
        (DISCRETE, HEAD),
        (NO_MARKET, MLP),
        (NO_MARKET_DISCRETE, MLP),
        (CONTINUOUS, STACK),
        (WITH_CASH, GRU),
        (CONTINUOUS, LSTM),
    ],
)
def test_actor_critic_gradients(algorithm, sizes, network):
    learnt = population("ppo", sizes, network)
    seen = inputs(sizes, bars=learnt.weights.layout.memory_bars)
    chances, done = batch(learnt, sizes, seen)
    with torch.no_grad():
        write_gradients(learnt, chances, algorithm.OBJECTIVE, seen, done)
    assert bool(learnt.active_P.all())
    require_equal(
        learnt,
        lambda p: loss(learnt, p, chances, algorithm.OBJECTIVE, seen, done),
    )


def sample(learnt, sizes, seed=20):
    seen, later = inputs(sizes, seed=seed), inputs(sizes, seed=seed + 3)
    shape = seen.account_PLES.shape[:3]
    generator = torch.Generator().manual_seed(5)
    if sizes.num_choices:
        action = torch.randint(
            0, sizes.num_choices, (*shape, sizes.num_actions), generator=generator
        ).float()
    else:
        action = torch.rand(*shape, sizes.num_actions, generator=generator) * 2 - 1
    goes_on, is_open = (torch.rand(2, *shape, generator=generator) > 0.3).float()
    return critics.Sample(seen, action, numbers(*shape, seed=4), later, goes_on, is_open)


OFF_POLICY = [
    (CONTINUOUS, FULL),
    (CONTINUOUS, RELU),
    (CONTINUOUS, HEAD),
    (WITH_CASH, NO_HEAD),
    (NO_MARKET, MLP),
]


@pytest.mark.parametrize(("sizes", "network"), OFF_POLICY)
@pytest.mark.parametrize("algorithm", ["ddpg", "td3", "sac"])
def test_critic_gradients(algorithm, sizes, network):
    module = {"ddpg": ddpg, "td3": td3, "sac": sac}[algorithm]
    learnt = population(algorithm, sizes, network)
    s = sample(learnt, sizes)
    seen, wanted = s.inputs.with_actions(s.action_PLEN), numbers(*s.reward_PLE.shape, seed=6)
    with torch.no_grad():
        critics.write_critic_gradients(learnt, module.CRITICS, seen, wanted, s.is_open_PLE)
    require_equal(
        learnt,
        lambda p: critics.critic_loss(p, module.CRITICS, seen, wanted, s.is_open_PLE),
        ("critic",),
    )


@pytest.mark.parametrize(("sizes", "network"), OFF_POLICY)
@pytest.mark.parametrize("algorithm", ["ddpg", "td3"])
def test_deterministic_actor_gradients(algorithm, sizes, network):
    module = {"ddpg": ddpg, "td3": td3}[algorithm]
    learnt = population(algorithm, sizes, network)
    s = sample(learnt, sizes)
    seen, is_open = s.inputs, s.is_open_PLE
    with torch.no_grad():
        critics.write_deterministic_gradients(learnt, module.CRITICS[0], seen, is_open)
    require_equal(
        learnt,
        lambda p: critics.deterministic_loss(p, module.CRITICS[0], seen, is_open),
        ("head", "mlp", "cash_score"),
    )


@pytest.mark.parametrize(("sizes", "network"), OFF_POLICY)
def test_soft_actor_gradients(sizes, network):
    learnt = population("sac", sizes, network)
    explore = exploration("sac", sizes, learnt.hyper, ReplaySettings())
    s = sample(learnt, sizes)
    seen, is_open = s.inputs, s.is_open_PLE
    num_sessions = seen.account_PLES.shape[1]
    noise = numbers(num_sessions, seen.account_PLES.shape[2], sizes.num_actions, seed=3)
    with torch.no_grad():
        sac.write_actor_gradients(learnt, explore, seen, noise, is_open)
    require_equal(
        learnt,
        lambda p: sac.actor_loss(p, explore, seen, noise, is_open),
        ("head", "mlp", "cash_score", "log_std"),
    )


@pytest.mark.parametrize(
    ("sizes", "network"),
    [(DISCRETE, FULL), (DISCRETE, RELU), (DISCRETE, NO_HEAD), (NO_MARKET_DISCRETE, MLP)],
)
@pytest.mark.parametrize("duelling", [False, True])
def test_q_gradients(sizes, network, duelling):
    settings = ReplaySettings(duelling=duelling)
    learnt = population("dqn", sizes, network, replay=settings)
    s = sample(learnt, sizes)
    wanted = numbers(*s.reward_PLE.shape, seed=6)
    with torch.no_grad():
        done = s.inputs, s.action_PLEN, wanted, s.is_open_PLE
        dqn.write_gradients(learnt, settings, *done)
    require_equal(learnt, lambda p: dqn.loss(p, settings, *done))


def test_there_are_as_many_agents_as_the_tests_compare():
    assert len(population("ppo")) == P > 1
    assert actor_critic.GROUPS == {"policy": ("",)}
