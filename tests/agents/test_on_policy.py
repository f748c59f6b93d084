"""Densities, advantages and losses of PPO and A2C against torch.distributions and scalar loops."""

import numpy as np
import pytest
import torch

from podracer.agents import a2c, ppo
from podracer.agents.actor_critic import loss, write_gradients
from podracer.agents.advantages import cohort_advantages, critic_advantages, normalised
from podracer.agents.algorithms import distribution
from podracer.agents.batch import Batch
from podracer.agents.distributions import Categorical, Gaussian
from podracer.agents.networks import Inputs, actor, mlp
from podracer.agents.settings import NetworkSettings, PpoSettings
from tests.agents.populations import CONTINUOUS, DISCRETE, NO_MARKET, inputs, numbers, population
from tests.agents.test_gradients import MLP, batch


def densities(sizes, weights, output, taken):
    """What torch.distributions says of the actions, one agent after the other."""
    if sizes.num_choices:
        logits = output.reshape(*output.shape[:-1], sizes.num_actions, sizes.num_choices)
        chances = torch.distributions.Categorical(logits=logits)
        return chances.log_prob(taken.done_PLEN).sum(-1), chances.entropy().sum(-1)
    std = weights["log_std"].exp()[:, None, None]
    old_std = taken.log_std_PS.exp()[:, None, None]
    chances = torch.distributions.Normal(output, std.expand_as(output))
    action = taken.output_PLEO + old_std * taken.done_PLEN
    return chances.log_prob(action).sum(-1), chances.entropy().sum(-1)


@pytest.mark.parametrize("network", [MLP, NetworkSettings()])
@pytest.mark.parametrize("sizes", [CONTINUOUS, DISCRETE, NO_MARKET])
def test_log_ratios_and_entropies_are_those_of_the_densities(sizes, network):
    if not sizes.num_assets and not network.mlp_hidden:
        return
    learnt, seen = population("ppo", sizes, network), inputs(sizes)
    chances, done = batch(learnt, sizes, seen)
    output, _ = actor(learnt.weights, seen)
    found = chances.compare(learnt.weights, output, done.taken)
    new, entropy = densities(sizes, learnt.weights, output, done.taken)
    old_weights = learnt.weights
    if not sizes.num_choices:
        old_weights = {"log_std": done.taken.log_std_PS}
    old, _ = densities(sizes, old_weights, done.taken.output_PLEO, done.taken)
    assert torch.allclose(found.log_ratio_PLE, new - old, atol=2e-5)
    assert torch.allclose(found.entropy_P, entropy.flatten(1).mean(1), atol=1e-5)


def test_choices_are_drawn_with_the_chances_that_the_scores_say():
    chances = Categorical(1, 3)
    scores = torch.tensor([0.0, 1.0, -1.0])
    noise = chances.draw_noise((60_000,), torch.Generator().manual_seed(0))
    drawn = chances.draw(scores.expand(60_000, 3), noise, None, 0)
    shares = np.bincount(drawn[:, 0].long().numpy(), minlength=3) / 60_000
    # Four standard errors of a share are below 0.0085.
    assert np.abs(shares - torch.softmax(scores, 0).numpy()).max() < 0.0085


def test_actions_have_the_mean_and_deviation_that_the_policy_says():
    chances, weights = Gaussian(2), population("ppo", NO_MARKET, MLP).weights
    noise = chances.draw_noise((3, 40_000), torch.Generator().manual_seed(0))
    drawn = chances.draw(torch.ones(3, 40_000, 2), noise, weights, 0)
    std = weights["log_std"].exp()[:, None]
    assert torch.allclose(drawn.mean(1), torch.ones(3, 2), atol=0.03)
    assert torch.allclose(drawn.std(1), std.expand(3, 1, 2)[:, 0], rtol=0.02)


def test_constant_rewards_have_the_value_of_a_geometric_series():
    reward, endless = torch.ones(1, 1, 50, 2), 1 / (1 - 0.9)
    value = torch.full((1, 1, 50, 2), endless)
    args = torch.tensor([0.9]), torch.tensor([0.95])
    advantage = critic_advantages(reward, value, value, torch.ones_like(value), *args)
    # The value is right everywhere and bootstraps the truncated end, so nothing is a surprise.
    assert torch.allclose(advantage, torch.zeros_like(advantage), atol=1e-5)
    cut = value.clone()
    cut[:, :, -1] = 0.0
    advantage = critic_advantages(reward, value, cut, torch.ones_like(value), *args)
    assert float(advantage[0, 0, -1, 0]) == pytest.approx(-0.9 * endless, rel=1e-5)


def test_advantages_equal_a_scalar_loop_and_stop_where_an_episode_does():
    reward, value, after = (numbers(2, 3, 6, 4, seed=s) for s in range(3))
    goes_on = torch.ones(2, 3, 6, 4)
    goes_on[:, 1, 2, 2] = 0.0
    discount, decay = torch.tensor([0.9, 0.5]), torch.tensor([0.8, 1.0])
    found = critic_advantages(reward, value, after, goes_on, discount, decay)
    alone = cohort_advantages(reward, discount)
    for p in range(2):
        d, k = float(discount[p]), float(decay[p])
        for t in range(6):
            last = 2 if t <= 2 else 5
            expected = sum(
                (d * k) ** (s - t)
                * float(reward[p, 1, s, 2] + d * after[p, 1, s, 2] - value[p, 1, s, 2])
                for s in range(t, last + 1)
            )
            assert float(found[p, 1, t, 2]) == pytest.approx(expected, abs=1e-5)
            returns = [
                sum(d ** (s - t) * float(reward[p, 1, s, e]) for s in range(t, 6)) for e in range(4)
            ]
            mean = sum(returns) / 4
            assert float(alone[p, 1, t, 2]) == pytest.approx(returns[2] - mean, abs=1e-5)


def test_normalised_advantages_have_mean_0_and_deviation_1_for_each_agent_over_open_accounts():
    is_open = (numbers(2, 3, 4, 5, seed=1) > -0.5).float()
    raw = 5 + 3 * numbers(2, 3, 4, 5) * torch.tensor([1.0, 9.0]).view(2, 1, 1, 1)
    found = normalised(raw, is_open)
    for p in range(2):
        kept = found[p][is_open[p] > 0]
        assert float(kept.mean()) == pytest.approx(0, abs=1e-5)
        assert float(kept.std(correction=0)) == pytest.approx(1, abs=1e-5)
        assert not found[p][is_open[p] == 0].any()


def test_the_loss_is_minus_the_clipped_objective_minus_entropy_plus_the_critics_error():
    learnt, seen = population("ppo"), inputs()
    chances, done = batch(learnt, CONTINUOUS, seen)
    found = loss(learnt, learnt.weights, chances, ppo.OBJECTIVE, seen, done)
    plain = loss(learnt, learnt.weights, chances, a2c.OBJECTIVE, seen, done)
    output, _ = actor(learnt.weights, seen)
    value = mlp(learnt.weights, "critic", seen)[0][..., 0]
    new, entropy = densities(CONTINUOUS, learnt.weights, output, done.taken)
    old, _ = densities(
        CONTINUOUS, {"log_std": done.taken.log_std_PS}, done.taken.output_PLEO, done.taken
    )
    for p in range(3):
        clip, total, weighted, errors = float(learnt.hyper["clip"][p]), 0.0, 0.0, 0.0
        for i in np.ndindex(4, 5):
            change, advantage = float(new[p][i] - old[p][i]), float(done.advantage_PLE[p][i])
            ratio = np.exp(change)
            total -= min(ratio * advantage, min(max(ratio, 1 - clip), 1 + clip) * advantage)
            weighted -= change * advantage
            counts = float(done.is_open_PLE[p][i])
            errors += 0.5 * counts * float(value[p][i] - done.return_PLE[p][i]) ** 2
        bonus = float(learnt.hyper["entropy_bonus"][p]) * float(entropy[p].mean())
        assert float(found[p]) == pytest.approx((total + errors) / 20 - bonus, abs=1e-4)
        assert float(plain[p]) == pytest.approx((weighted + errors) / 20 - bonus, abs=1e-4)


def test_a_ratio_beyond_the_clip_is_not_rewarded_further():
    change = torch.tensor([[[0.5, 0.5, -0.5, -0.5, 25.0]]])
    advantage = torch.tensor([[[1.0, -1.0, 1.0, -1.0, -1.0]]])
    found = ppo.clipped_gradient(change, advantage, torch.full((1, 1, 1), 0.2))
    # e^0.5 = 1.6487 and e^-0.5 = 0.6065, against 0.8 … 1.2.
    expected = [0.0, -1.6487, 0.6065, 0.0, 0.0]
    assert found.flatten().tolist() == pytest.approx(expected, abs=1e-4)


def whole(learnt, sizes, num_cohorts=4, num_decisions=2, num_envs=5):
    """A rollout (P, C, T, E), and what networks see of it."""
    P = len(learnt)
    tables = numbers(30, 3, 2, seed=31), numbers(30, 5, seed=32)
    session = torch.randint(
        0, 30, (num_cohorts, num_decisions), generator=torch.Generator().manual_seed(1)
    )
    account = numbers(P, num_cohorts, num_decisions, num_envs, 4, seed=33)

    def inputs_of(session_CT, account_PLES):
        session_L = session_CT.flatten()
        return Inputs(tables[0][session_L], tables[1][session_L], account_PLES)

    with torch.no_grad():
        output, _ = actor(learnt.weights, inputs_of(session, account.flatten(1, 2)))
    output = output.reshape(P, num_cohorts, num_decisions, -1, output.shape[-1])
    noise = numbers(P, num_cohorts, num_decisions, num_envs, 3, seed=34)
    taken = distribution(sizes).taken(output + 0.1, noise, noise, learnt.weights)
    shape = (P, num_cohorts, num_decisions, num_envs)
    made = Batch(session, taken, account, numbers(*shape, seed=35), numbers(*shape, seed=36))
    return made, inputs_of


def test_a_minibatch_is_some_whole_cohorts():
    learnt = population("ppo")
    made, _ = whole(learnt, CONTINUOUS)
    part = made.minibatch(torch.tensor([3, 1]))
    assert torch.equal(part.session_CT, made.session_CT[[3, 1]])
    assert torch.equal(part.advantage_PLE[:, 1], made.advantage_PCTE[:, 3, 1])
    assert torch.equal(part.account_PLES[:, 2], made.account_PCTES[:, 1, 0])
    assert torch.equal(part.taken.done_PLEN[:, 3], made.taken.done_PLEN[:, 1, 1])


@pytest.mark.parametrize("algorithm", ["ppo", "a2c"])
def test_a_poisoned_agent_is_marked_and_its_neighbours_keep_their_bits(algorithm):
    results = []
    for poison in (False, True):
        learnt = population(algorithm, num_agents=4)
        made, inputs_of = whole(learnt, CONTINUOUS)
        if poison:
            learnt.weights.flat_PW[1, 1] = torch.inf
        with torch.no_grad():
            if algorithm == "a2c":
                a2c.learn(learnt, distribution(CONTINUOUS), made, inputs_of)
            else:
                generator = torch.Generator().manual_seed(0)
                settings = PpoSettings(epochs=2, minibatches=2)
                ppo.learn(learnt, distribution(CONTINUOUS), settings, made, inputs_of, generator)
        results.append(learnt)
    healthy, sick = results
    assert healthy.active_P.tolist() == [True] * 4
    assert sick.active_P.tolist() == [True, False, True, True]
    for p in (0, 2, 3):
        for name, tensor in healthy.tensors().items():
            assert torch.equal(tensor[p], sick.tensors()[name][p]), (p, name)
    assert not torch.equal(healthy.weights.flat_PW[0], population(algorithm).weights.flat_PW[0])


def test_agents_that_have_gone_too_far_or_explore_no_more_are_marked_with_the_cause():
    learnt = population("ppo", num_agents=4)
    made, inputs_of = whole(learnt, CONTINUOUS)
    learnt.weights["log_std"][0] = -11.0
    learnt.weights["mlp_bias3"][2] += 50.0
    part = made.minibatch(torch.arange(4))
    with torch.no_grad():
        seen = inputs_of(part.session_CT, part.account_PLES)
        dead = write_gradients(learnt, distribution(CONTINUOUS), ppo.OBJECTIVE, seen, part)
    learnt.judge(dead)
    assert learnt.cause_P.tolist() == [2, 0, 2, 0]
    learnt = population("ppo", num_agents=2)
    learnt.weights["log_std"][0] = -11.0
    made, inputs_of = whole(learnt, CONTINUOUS)
    made = made._replace(
        taken=made.taken._replace(output_PLEO=made.taken.output_PLEO - 0.1)
    ).minibatch(torch.arange(4))
    with torch.no_grad():
        seen = inputs_of(made.session_CT, made.account_PLES)
        dead = write_gradients(learnt, distribution(CONTINUOUS), ppo.OBJECTIVE, seen, made)
    learnt.judge(dead)
    assert learnt.cause_P.tolist() == [3, 0]
