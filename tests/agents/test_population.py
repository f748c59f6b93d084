"""Adam, groups of weights, failures and checkpoints."""

import pytest
import torch

from podracer.agents import checkpoint
from podracer.agents.adam import Moments, adam_step
from podracer.agents.population import DEAD, EXPLODING, NON_FINITE
from podracer.errors import CheckpointError
from tests.agents.populations import numbers, population


def moments(num_agents, num_weights):
    zeros = torch.zeros(num_agents, num_weights)
    return Moments(zeros, zeros.clone(), torch.zeros(num_agents))


def test_adam_moves_each_agent_as_torch_does_with_its_own_rate_and_divisor():
    rates, divisors = torch.tensor([1e-2, 3e-3]), torch.tensor([1.0, 2.5])
    start = numbers(2, 7)
    ours, memory = start.clone(), moments(2, 7)
    theirs = [torch.nn.Parameter(start[i].clone()) for i in range(2)]
    reference = [
        torch.optim.Adam([p], lr=float(r), eps=1e-5) for p, r in zip(theirs, rates, strict=True)
    ]
    for step in range(20):
        gradient = numbers(2, 7, seed=step)
        adam_step(ours, gradient.clone(), memory, rates, divisors, torch.ones(2, dtype=torch.bool))
        for i in range(2):
            theirs[i].grad = gradient[i] / divisors[i]
            reference[i].step()
    assert torch.allclose(ours, torch.stack([p.detach() for p in theirs]), atol=1e-6)


def test_an_inactive_agent_keeps_every_bit():
    ours, memory = torch.ones(2, 3), moments(2, 3)
    gradient = torch.full((2, 3), torch.nan)
    adam_step(ours, gradient, memory, torch.ones(2), torch.ones(2), torch.zeros(2).bool())
    assert ours.tolist() == torch.ones(2, 3).tolist()
    assert memory.mean_PW.tolist() == torch.zeros(2, 3).tolist()


def test_a_group_moves_alone_and_long_gradients_are_shortened():
    learnt = population("td3")
    before = learnt.weights.flat_PW.clone()
    learnt.gradients.flat_PW.copy_(100 * numbers(*before.shape, seed=1))
    span = learnt.weights.layout.span("critic")
    length = learnt.gradients.flat_PW[:, span].norm(dim=1)
    wanted = learnt.gradients.flat_PW[:, span] * (0.5 / length)[:, None]
    learnt.step("critics", torch.full((3,), 1e-3), max_norm=0.5)
    moved = learnt.weights.flat_PW != before
    assert bool(moved[:, span].all())
    assert int(moved.sum()) == moved[:, span].numel()
    # After one step from nothing the mean is a tenth of the gradient.
    assert torch.allclose(learnt.mean_PW[:, span], 0.1 * wanted, rtol=1e-4, atol=1e-8)
    assert learnt.steps_PG.tolist() == [[0.0, 1.0]] * 3


def test_an_agent_whose_gradient_is_not_finite_is_passed_over_and_keeps_the_first_cause():
    learnt = population("ppo")
    learnt.gradients.flat_PW.fill_(0.1)
    learnt.gradients.flat_PW[1, 3] = torch.inf
    learnt.step("policy", torch.full((3,), 1e-3))
    learnt.judge()
    assert learnt.cause_P.tolist() == [0, NON_FINITE, 0]
    before = learnt.weights.flat_PW.clone()
    learnt.gradients.flat_PW.fill_(0.1)
    learnt.step("policy", torch.full((3,), 1e-3))
    moved_P = (learnt.weights.flat_PW != before).any(1) & before.isfinite().all(1)
    assert moved_P.tolist() == [True, False, True]
    learnt.farthest_P = torch.tensor([0.0, 20.0, 20.0])
    learnt.judge(torch.tensor([False, False, True]))
    assert learnt.cause_P.tolist() == [0, NON_FINITE, EXPLODING]
    learnt.judge(torch.tensor([True, False, True]))
    assert learnt.cause_P.tolist() == [DEAD, NON_FINITE, EXPLODING]


def test_checkpoints_round_trip_and_refuse_damage(tmp_path):
    tensors = {"weights": torch.randn(5)}
    checkpoint.save(tmp_path / "a", tensors, {"name": "a"})
    checkpoint.save(tmp_path / "a", tensors | {"more": torch.ones(1)}, {"name": "b"})
    loaded, facts = checkpoint.load(tmp_path / "a")
    assert torch.equal(loaded["weights"], tensors["weights"])
    assert facts["name"] == "b"
    (kept,) = tmp_path.glob("a-*.safetensors")
    for damaged in (kept.read_bytes()[:-1] + b"x", kept.read_bytes()[:10]):
        kept.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"a-.*expected sha256 .*: damaged or changed"):
            checkpoint.load(tmp_path / "a")
    with pytest.raises(CheckpointError, match="not a readable checkpoint"):
        checkpoint.load(tmp_path / "none")


@pytest.mark.parametrize(
    ("edited", "message"),
    [
        (lambda text: text.replace('"steps": 5', '"steps": 6'), r"a\.json: expected sha256"),
        (lambda text: text.replace('"format": 2', '"format": 1'), "expected format 2, found 1"),
        (lambda text: "[1]", "not a readable checkpoint"),
        (lambda text: "7", "not a readable checkpoint"),
        (lambda text: text[:-9], "not a readable checkpoint"),
    ],
)
def test_edited_facts_are_refused(tmp_path, edited, message):
    checkpoint.save(tmp_path / "a", {"weights": torch.zeros(2)}, {"steps": 5})
    path = tmp_path / "a.json"
    path.write_text(edited(path.read_text()))
    with pytest.raises(CheckpointError, match=message):
        checkpoint.load(tmp_path / "a")
