"""That agents learn: a subset of the studies in benchmarks/, in about two minutes (`make slow`)."""

import numpy as np
import pytest
import torch

from benchmarks import memory_study, planted_pairs
from benchmarks.learn_pairs import ours
from benchmarks.learn_tasks import TASKS
from podracer.market.synthetic import PlantedSettings, planted_market

pytestmark = pytest.mark.slow
BY_NAME = {task.name: task for task in TASKS}


@pytest.fixture(autouse=True)
def single_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("name", "steps", "least"),
    [
        # CartPole counts as solved at 475 (Gymnasium); a policy that does nothing well gets about 20.
        ("CartPole-v1 ppo", 60_000, 400),
        ("CartPole-v1 a2c", 100_000, 300),
        # A pendulum at rest below earns about -1,200, one that is swung up and held -150.
        ("Pendulum-v1 ddpg", 6_000, -400),
        ("Pendulum-v1 sac", 6_000, -400),
    ],
)
def test_agents_learn_what_the_task_asks(name, steps, least):
    scores = [line["score"] for line in ours(BY_NAME[name]._replace(steps=steps), 4)]
    assert np.median(scores) >= least, scores


def test_a_pod_earns_80_percent_of_the_oracle_on_a_planted_market():
    market = planted_market(PlantedSettings(seed=5))
    best = planted_pairs.oracle(market)
    train, judge = planted_pairs.pod(market, seed=5)
    for _ in range(25):
        train()
    assert judge() >= 0.8 * best


def test_a_memory_finds_a_hidden_regime_and_agents_without_one_do_not():
    without = memory_study.scores(memory_study.trained("none", 200_000).acting)
    acting = memory_study.trained("stack", 800_000).acting
    found = memory_study.scores(acting)
    assert without.mean() <= 0.6
    assert found.mean() >= 0.9
    assert memory_study.scores(acting, shuffled=True).mean() <= 0.8 * found.mean()
