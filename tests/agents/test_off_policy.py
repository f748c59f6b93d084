"""Targets, exploration and replay of DDPG, TD3, SAC and DQN against scalar loops."""

import math

import numpy as np
import pytest
import torch

from podracer.agents import ddpg, dqn, sac, td3
from podracer.agents.algorithms import exploration
from podracer.agents.critics import follow
from podracer.agents.exploration import Additive, EpsilonGreedy, Squashed
from podracer.agents.networks import actor, mlp
from podracer.agents.parameters import Parameters
from podracer.agents.replay import Replay, Transitions
from podracer.agents.settings import ReplaySettings
from podracer.errors import ConfigError
from tests.agents.populations import CONTINUOUS, DISCRETE, NO_MARKET, numbers, population
from tests.agents.test_gradients import MLP, sample


def target_of(learnt):
    flat = learnt.weights.flat_PW
    return Parameters(flat + 0.1 * numbers(*flat.shape, seed=77), learnt.weights.layout)


def value(parameters, name, seen):
    return mlp(parameters, name, seen)[0][..., 0]


def test_ddpg_and_td3_targets_are_reward_and_the_discounted_value_of_the_targets_action():
    for module, name in ((ddpg, "ddpg"), (td3, "td3")):
        learnt = population(name)
        target, s = target_of(learnt), sample(learnt, CONTINUOUS)
        noise = 3 * numbers(4, 5, 3, seed=2)
        extra = (noise,) if name == "td3" else ()
        found = module.targets(learnt, target, s, *extra)
        action = torch.tanh(actor(target, s.next_inputs)[0])
        for p in range(3):
            if name == "td3":
                std = float(learnt.hyper["target_noise"][p])
                action[p] = (action[p] + (std * noise).clamp(-0.5, 0.5)).clamp(-1, 1)
        seen = s.next_inputs.with_actions(action)
        values = [value(target, critic, seen) for critic in module.CRITICS]
        for i in np.ndindex(3, 4, 5):
            smallest = min(float(v[i]) for v in values)
            discount = float(learnt.hyper["discount"][i[0]])
            expected = float(s.reward_PLE[i]) + discount * float(s.goes_on_PLE[i]) * smallest
            assert float(found[i]) == pytest.approx(expected, abs=1e-5)


def test_sac_targets_are_soft_and_its_density_is_that_of_a_squashed_normal():
    learnt = population("sac")
    learnt.weights["temperature"].copy_(torch.tensor([[0.0], [-1.0], [0.5]]))
    explore = exploration("sac", CONTINUOUS, learnt.hyper, ReplaySettings())
    target, s = target_of(learnt), sample(learnt, CONTINUOUS)
    noise = numbers(4, 5, 3, seed=2)
    found = sac.targets(learnt, target, explore, s, noise)
    mean, log_std = explore.split(actor(learnt.weights, s.next_inputs)[0], learnt.weights)
    base = torch.distributions.Normal(mean.double(), log_std.double().exp())
    squashed = torch.distributions.TransformedDistribution(
        base, torch.distributions.transforms.TanhTransform(cache_size=1)
    )
    action = torch.tanh(mean.double() + log_std.double().exp() * noise)
    density = squashed.log_prob(action).sum(-1)
    seen = s.next_inputs.with_actions(action.float())
    smallest = torch.minimum(value(target, "critic1", seen), value(target, "critic2", seen))
    for i in np.ndindex(3, 4, 5):
        temperature = math.exp(float(learnt.weights["temperature"][i[0], 0]))
        soft = float(smallest[i]) - temperature * float(density[i])
        discount = float(learnt.hyper["discount"][i[0]])
        expected = float(s.reward_PLE[i]) + discount * float(s.goes_on_PLE[i]) * soft
        assert float(found[i]) == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("duelling", [False, True])
def test_dqn_targets(double, duelling):
    settings = ReplaySettings(double=double, duelling=duelling)
    learnt = population("dqn", DISCRETE, replay=settings)
    target, s = target_of(learnt), sample(learnt, DISCRETE)
    found = dqn.targets(learnt, target, settings, s)

    def q_of(parameters):
        out = actor(parameters, s.next_inputs)[0]
        q = out[..., :9].reshape(3, 4, 5, 3, 3)
        return q + out[..., 9:, None] - q.mean(-1, keepdim=True) if duelling else q

    judged = q_of(target)
    chosen = q_of(learnt.weights) if double else judged
    for i in np.ndindex(3, 4, 5):
        best = [float(judged[i][n][int(chosen[i][n].argmax())]) for n in range(3)]
        discount = float(learnt.hyper["discount"][i[0]])
        expected = float(s.reward_PLE[i]) + discount * float(s.goes_on_PLE[i]) * np.mean(best)
        assert float(found[i]) == pytest.approx(expected, abs=1e-5)


def learn(name, learnt, target, s):
    settings = ReplaySettings()
    shape = s.action_PLEN.shape[1:]
    with torch.no_grad():
        if name == "ddpg":
            ddpg.learn(learnt, target, s)
        elif name == "td3":
            td3.learn(learnt, target, s, numbers(*shape), moves_actor=True)
        elif name == "sac":
            explore = exploration("sac", CONTINUOUS, learnt.hyper, settings)
            sac.learn(learnt, target, explore, s, numbers(*shape), numbers(*shape, seed=1))
        else:
            dqn.learn(learnt, target, settings, s)


@pytest.mark.parametrize("name", ["ddpg", "td3", "sac", "dqn"])
def test_a_poisoned_agent_is_marked_and_its_neighbours_keep_their_bits(name):
    results = []
    for poison in (False, True):
        learnt = population(name, DISCRETE if name == "dqn" else CONTINUOUS, num_agents=4)
        target = Parameters(learnt.weights.flat_PW.clone(), learnt.weights.layout)
        s = sample(learnt, DISCRETE if name == "dqn" else CONTINUOUS)
        s = s._replace(
            inputs=s.inputs._replace(account_PLES=numbers(4, 4, 5, 4, seed=1)),
            next_inputs=s.next_inputs._replace(account_PLES=numbers(4, 4, 5, 4, seed=2)),
            action_PLEN=torch.cat([s.action_PLEN, s.action_PLEN[:1]]),
            reward_PLE=numbers(4, 4, 5, seed=3),
            goes_on_PLE=torch.ones(4, 4, 5),
            is_open_PLE=torch.ones(4, 4, 5),
        )
        if poison:
            learnt.weights["mlp_bias1"][2] = torch.nan
        for _ in range(2):
            learn(name, learnt, target, s)
        learnt.judge()
        results.append(learnt)
    healthy, sick = results
    assert healthy.active_P.tolist() == [True] * 4
    assert sick.active_P.tolist() == [True, True, False, True]
    for p in (0, 1, 3):
        for key, tensor in healthy.tensors().items():
            assert torch.equal(tensor[p], sick.tensors()[key][p]), (p, key)


def test_the_temperature_rises_while_actions_are_less_random_than_wanted():
    learnt = population("sac")
    learnt.weights["log_std"].copy_(torch.tensor([[-5.0] * 3, [-5.0] * 3, [0.0] * 3]))
    learnt.weights["temperature"].zero_()
    target, s = target_of(learnt), sample(learnt, CONTINUOUS)
    s = s._replace(is_open_PLE=torch.ones(3, 4, 5))
    learn("sac", learnt, target, s)
    moved = learnt.weights["temperature"][:, 0]
    # A first step of Adam is as long as the learning rate.
    assert moved.tolist() == pytest.approx([5e-3, 5e-3, -5e-3], rel=1e-2)


def test_targets_move_a_share_of_the_way():
    learnt = population("ddpg")
    learnt.hyper["target_rate"] = torch.tensor([0.0, 0.25, 1.0])
    target = Parameters(torch.zeros_like(learnt.weights.flat_PW), learnt.weights.layout)
    follow(target, learnt)
    for p, share in enumerate((0.0, 0.25, 1.0)):
        assert torch.allclose(target.flat_PW[p], share * learnt.weights.flat_PW[p])


def test_warm_up_actions_are_uniform_whatever_the_network_says():
    weights = population("sac", NO_MARKET, MLP).weights
    for explore in (Additive(2, torch.full((3,), 0.1), 100), Squashed(2, 100)):
        noise = explore.draw_noise((3, 20_000), torch.Generator().manual_seed(0))
        drawn = explore.draw(torch.full((3, 20_000, 2), 9.0), noise, weights, 99)
        assert float(drawn.abs().max()) <= 1.0
        shares = torch.histc(drawn, 10, -1, 1) / drawn.numel()
        assert torch.allclose(shares, torch.full((10,), 0.1), atol=0.006)


def test_noise_is_added_to_ddpgs_action_and_clipped():
    explore = Additive(2, torch.tensor([0.1, 0.5]), 0)
    output, noise = torch.tensor([[[0.3, 2.0]]]).expand(2, 1, 2), torch.ones(2, 1, 2)
    found = explore.draw(output, noise, None, 0)
    assert found[0, 0].tolist() == pytest.approx([math.tanh(0.3) + 0.1, 1.0])
    assert found[1, 0].tolist() == pytest.approx([math.tanh(0.3) + 0.5, 1.0])


def test_random_choices_become_rarer_and_the_rest_are_best():
    explore = EpsilonGreedy(2, 3, torch.tensor([0.1, 0.5]), 0, 1_000)
    scores = torch.tensor([0.0, 5.0, 1.0, 2.0, 0.0, 0.0]).expand(2, 30_000, 6)
    noise = torch.stack(
        [explore.draw_noise((30_000,), torch.Generator().manual_seed(i)) for i in range(2)]
    )
    for step, chances in ((0, (1.0, 1.0)), (500, (0.55, 0.75)), (5_000, (0.1, 0.5))):
        drawn = explore.draw(scores, noise, None, step)
        for p in range(2):
            for n, best in enumerate((1.0, 0.0)):
                share = float((drawn[p, :, n] == best).float().mean())
                assert share == pytest.approx(1 - chances[p] * 2 / 3, abs=0.015)


def transitions(start, number, num_agents=2, num_accounts=2):
    """Sessions whose contents tell which one, which agent and which account it is."""
    which = torch.arange(start, start + number).float()
    each = which[:, None] + 0.25 * torch.arange(num_accounts)
    each = each + 1000.0 * torch.arange(num_agents)[:, None, None]
    return Transitions(
        which.long(),
        each[..., None].repeat(1, 1, 1, 3),
        -each[..., None].repeat(1, 1, 1, 2),
        2 * each,
        each[..., None].repeat(1, 1, 1, 3) + 0.5,
        1 / (1 + each),
        2 / (1 + each),
    )


SMALL = ReplaySettings(capacity_steps=40, batch_size=4)


def test_a_replay_forgets_the_oldest_and_gives_back_what_it_was_given():
    replay = Replay(SMALL, (2, 2, 3, 2), spare_steps=12)
    for start in range(0, 60, 6):
        replay.add(transitions(start, 6))
        drawn = replay.draw(1_000, torch.Generator().manual_seed(start))
        newest = start + 6
        assert len(drawn.session_L) == 500
        assert set(drawn.session_L.tolist()) == set(range(max(0, newest - 20), newest))
        assert len(replay) == 2 * min(newest, 20)
        for p, e in np.ndindex(2, 2):
            x = drawn.session_L.float() + 0.25 * e + 1000 * p
            assert torch.equal(drawn.account_PLES[p, :, e], x[:, None].repeat(1, 3))
            assert torch.equal(drawn.action_PLEN[p, :, e], -x[:, None].repeat(1, 2))
            assert torch.equal(drawn.reward_PLE[p, :, e], 2 * x)
            assert torch.equal(drawn.next_account_PLES[p, :, e], x[:, None].repeat(1, 3) + 0.5)
            assert torch.equal(drawn.goes_on_PLE[p, :, e], 1 / (1 + x))
            assert torch.equal(drawn.is_open_PLE[p, :, e], 2 / (1 + x))


def test_a_replay_in_a_file_outlives_its_process_and_what_came_after_the_checkpoint(tmp_path):
    def opened(path):
        return Replay(SMALL, (2, 2, 3, 2), spare_steps=24, path=path)

    undisturbed = opened(None)
    killed = opened(tmp_path / "replay.bin")
    for start in range(0, 60, 6):
        undisturbed.add(transitions(start, 6))
        killed.add(transitions(start, 6))
    facts = killed.facts()
    for start in (500, 506):
        killed.add(transitions(start, 6))
    del killed
    resumed = opened(tmp_path / "replay.bin")
    resumed.restore(facts)
    for seed in range(5):
        one = undisturbed.draw(50, torch.Generator().manual_seed(seed))
        other = resumed.draw(50, torch.Generator().manual_seed(seed))
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
        undisturbed.add(transitions(60 + 6 * seed, 6))
        resumed.add(transitions(60 + 6 * seed, 6))


def test_a_replay_that_memory_cannot_hold_is_refused_and_a_smaller_one_is_cut_to_it():
    settings = ReplaySettings(capacity_steps=10**6, capacity_mb=1, batch_size=8)
    cut = Replay(settings, (8, 2, 31, 30), spare_steps=64)
    # 95 numbers of 4 bytes for 2 accounts of 8 agents: 172 sessions in a MiB, 32 of them spare.
    assert cut.capacity == 172 - 32
    settings = ReplaySettings(capacity_mb=1, batch_size=512)
    with pytest.raises(
        ConfigError,
        match=r"pod\.replay\.capacity_mb: 1 MiB hold fewer than the 512 .* Set it to 2 at least, or lower "
        r"pod\.checkpoint_every",
    ):
        Replay(settings, (8, 2, 31, 30), 64)
