"""The search for fast sizes, and what is said when memory is short."""

import subprocess
import sys

import pytest
from ruamel.yaml import YAML

from podracer.agents.settings import Hyperparameters
from podracer.envs.observation import observe
from podracer.envs.settings import EnvSettings
from podracer.envs.tables import price_tables
from podracer.errors import ConfigError
from podracer.market.scaling import fit_scaler
from podracer.market.synthetic import PlantedSettings, planted_market
from podracer.market.windows import Window
from podracer.pipeline import tuning as pipeline_tuning
from podracer.pods import memory, tuning
from podracer.pods.market_rollouts import MarketRollouts
from podracer.pods.settings import PodSettings
from podracer.pods.spec import AgentSpec, PopulationSpec
from podracer.pods.trainer import Trainer
from podracer.pods.tuning import Choice

WINDOW = Window("train", 0, 200)
SMALL = PodSettings(agents=2, cohorts=2, envs_per_cohort=2, horizon_bars=4, ppo={"minibatches": 1})


@pytest.fixture(scope="module")
def opener():
    market = planted_market(PlantedSettings(num_sessions=220, num_assets=3))
    env = EnvSettings()
    seen = observe(market, fit_scaler(market.market_features_DF, WINDOW), env)
    tables = price_tables(market, env)

    def opened(settings, folder):
        agents = tuple(
            AgentSpec(name=f"a{i}", hyperparameters=Hyperparameters())
            for i in range(settings.agents)
        )
        spec = PopulationSpec(name="t", seed=1, agents=agents, settings=settings, folder=folder)
        return Trainer(spec, MarketRollouts(seen, tables, env, settings, WINDOW, len(agents)))

    return opened


def test_neighbours_double_or_halve_one_size_within_limits():
    found = set(Choice(2, 64, 4, 32).neighbours())
    assert found == {
        Choice(4, 64, 4, 32),
        Choice(2, 32, 4, 32),
        Choice(2, 64, 8, 32),
        Choice(2, 64, 2, 32),
        Choice(2, 64, 4, 64),
        Choice(2, 64, 4, 16),
    }


def test_a_search_finds_sizes_that_are_allowed_and_says_what_they_gain(opener):
    def is_allowed(settings):
        return settings.agents == 2 and settings.horizon_bars == 4 and settings.cohorts <= 8

    found = tuning.tune(SMALL, is_allowed, opener, cores=3, memory_bytes=1.2e9, seconds=20)
    assert found.before == Choice(2, 2, 2, 4)
    assert found.after.agents == 2
    assert found.after.horizon_bars == 4
    # Rollouts of 32 samples are all overhead: anything larger is far faster.
    assert found.after != found.before
    assert found.least <= found.gain <= found.most
    assert found.gain > 1
    assert found.workers == 2  # 0.5 GB each
    assert pipeline_tuning.facts(found)["after"]["agents"] == 2


def test_where_nothing_is_allowed_the_present_sizes_stay(opener):
    found = tuning.tune(SMALL, lambda settings: False, opener, 1, 1e9, seconds=5)
    assert found.after == found.before
    assert found.gain == 1.0
    assert found.tried == 1


def test_sizes_that_a_pod_refuses_are_passed_over(opener):
    def opened(settings, folder):
        if settings.cohorts > 2:
            raise ConfigError("pod.replay.capacity_mb: too small")
        return opener(settings, folder)

    found = tuning.tune(
        SMALL, lambda s: s.agents == 2 and s.horizon_bars == 4, opened, 4096, 2e13, seconds=5
    )
    assert found.after.cohorts == 2
    assert found.workers == 1024  # what pool.workers takes at most


def test_memory_in_which_no_worker_fits_is_refused(opener):
    with pytest.raises(
        ConfigError, match=r"--memory-gb: a worker with the present sizes takes about"
    ):
        tuning.tune(SMALL, lambda settings: True, opener, 1, 1e8, seconds=5)


def test_the_choice_is_written_and_comments_stay(tmp_path):
    params = tmp_path / "params.yaml"
    params.write_text("# mine\nname: x\npod:\n  agents: 8  # a pod\n  steps: 5\n")
    found = tuning.Tuning(
        Choice(8, 16, 8, 32), Choice(16, 16, 32, 32), 1.5, 1.4, 1.6, 1e6, 6e8, 3, 9
    )
    pipeline_tuning.write(found, params)
    text = params.read_text()
    assert text.startswith("# mine\n")
    assert "# a pod" in text
    assert YAML(typ="safe").load(text) == {
        "name": "x",
        "pod": {"agents": 16, "steps": 5, "cohorts": 16, "envs_per_cohort": 32, "horizon_bars": 32},
        "pool": {"workers": 3},
    }


def test_networks_that_no_memory_holds_are_refused_with_the_number_that_fits():
    # 100 agents of a million weights take 20 bytes each: 2 GB.
    memory.require_memory(100, 1_000_000, 2e9)
    with pytest.raises(
        ConfigError,
        match=r"pod\.network: 100 agents of 1,000,000 weights take 2\.0 GB .*; lower "
        r"pod\.agents to 74 or make the networks narrower",
    ):
        memory.require_memory(100, 1_000_000, 1.5e9)
    with pytest.raises(ConfigError, match=r"has 0\.0 GB; make the networks narrower"):
        memory.require_memory(2, 1_000_000, 1e7)


OUT_OF_MEMORY = """
import resource, sys
import torch
from podracer.pods.memory import out_of_memory
from podracer.pods.settings import PodSettings
resource.setrlimit(resource.RLIMIT_AS, (4 * 2**30, 4 * 2**30))
try:
    torch.zeros(8 * 2**30)
except (RuntimeError, MemoryError) as error:
    print(out_of_memory(error, "g1-p1", PodSettings()))
"""


def test_running_out_of_memory_says_what_to_lower_and_by_how_much():
    done = subprocess.run(
        [sys.executable, "-c", OUT_OF_MEMORY], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(
        "pod g1-p1: out of memory in a rollout of 16 cohorts of 8 accounts for 8 agents. Lower "
        "pod.cohorts from 16 to 8 (or pod.horizon_bars to 16), which halves it"
    )
    assert memory.out_of_memory(RuntimeError("another"), "x", SMALL) is None
    assert memory.out_of_memory(MemoryError(), "x", SMALL) is not None
