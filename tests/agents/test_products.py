"""Products with bfloat16 inside: what is rounded, by how much, and what is not."""

import numpy as np
import pytest
import torch

from podracer.agents.networks import actor, actor_backward, mlp, mlp_backward
from podracer.agents.products import product
from podracer.agents.settings import NetworkSettings
from tests.agents.populations import CONTINUOUS, P, inputs, numbers, population

# bfloat16 keeps 8 bits: a rounded number is off by 2^-9 of it at most.
HALF_BIT = 2.0**-9


def rounded(tensor):
    """Numbers to the nearest of bfloat16, ties to even: the upper half of a float32."""
    bits = tensor.numpy().view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return bits.astype(np.uint32).view(np.float32).astype(np.float64)


def test_rounded_factors_are_summed_exactly_and_the_result_is_rounded():
    left, right = numbers(P, 40, 200, seed=1), numbers(P, 200, 30, seed=2)
    found = product(left, right, is_rounded=True).double().numpy()
    expected = rounded(left) @ rounded(right)
    # Sums are float32: they may round the other way at a tie of bfloat16.
    assert np.abs(found - expected).max() <= 2 * HALF_BIT * np.abs(expected).max()
    assert np.median(np.abs(found / expected - 1)) < HALF_BIT
    out = torch.empty(P, 40, 30)
    assert product(left, right, True, out=out) is out
    assert np.array_equal(out.double().numpy(), found)
    exact = product(left, right, is_rounded=False)
    assert torch.equal(exact, torch.bmm(left, right))


def pair(width):
    """The same agents with both precisions."""
    made = [
        NetworkSettings(mlp_hidden=width, critic_hidden=width, precision=precision)
        for precision in ("float32", "bfloat16")
    ]
    return [population("ppo", network=network, scale=0.1) for network in made]


def gradients(learnt):
    """What is written for given gradients of all outputs."""
    seen = inputs()
    with torch.no_grad():
        output, hidden = actor(learnt.weights, seen)
        actor_backward(
            learnt.weights, learnt.gradients, seen, hidden, numbers(*output.shape, seed=5)
        )
        value, hidden = mlp(learnt.weights, "critic", seen)
        mlp_backward(
            learnt.weights, learnt.gradients, "critic", seen, hidden, numbers(*value.shape, seed=6)
        )
    return output, value, learnt.gradients.flat_PW


@pytest.mark.parametrize("width", [64, 128])
def test_only_wide_layers_are_rounded_and_by_little(width):
    exact, rounded = (gradients(learnt) for learnt in pair(width))
    for found, expected in zip(rounded, exact, strict=True):
        for agent in range(P):
            distance = float((found[agent] - expected[agent]).norm() / expected[agent].norm())
            assert (distance == 0) == (width < 128)
            assert distance < 8 * HALF_BIT  # a handful of roundings in a row


def test_the_written_gradients_are_those_of_the_rounded_forward_pass():
    learnt = pair(128)[1]
    seen = inputs()
    gradients(learnt)
    leaf = learnt.weights.flat_PW.clone().requires_grad_()
    parameters = type(learnt.weights)(leaf, learnt.weights.layout)
    with torch.enable_grad():
        output, _ = actor(parameters, seen)
        value, _ = mlp(parameters, "critic", seen)
        total = (output * numbers(*output.shape, seed=5)).sum()
        total = total + (value * numbers(*value.shape, seed=6)).sum()
        (expected,) = torch.autograd.grad(total, leaf)
    for agent in range(P):
        distance = (learnt.gradients.flat_PW - expected)[agent].norm() / expected[agent].norm()
        assert float(distance) < 4 * HALF_BIT


def test_the_output_layers_stay_float32():
    exact, rounded = pair(128)
    seen = inputs(CONTINUOUS)
    with torch.no_grad():
        _, hidden = mlp(rounded.weights, "critic", seen)
        value, _ = mlp(rounded.weights, "critic", seen)
        expected = hidden.second.double() @ exact.weights["critic_out"].double()
        expected += exact.weights["critic_bias3"].double()
    assert torch.allclose(value.flatten(1, 2).double(), expected, rtol=1e-5, atol=1e-6)
