"""Pods: exact resume, independence of neighbours, failures, workers, and learning."""

import os
import signal
import time

import numpy as np
import pytest
import torch

from podracer.agents import checkpoint
from podracer.agents.settings import Hyperparameters, NetworkSettings
from podracer.backtest.backtest import backtest
from podracer.envs.frozen_agents import load_agents
from podracer.envs.observation import observe
from podracer.envs.rollout import rollout
from podracer.envs.settings import EnvSettings
from podracer.envs.tables import price_tables
from podracer.errors import CheckpointError, DeviceError, MarketDataError, PodError
from podracer.market.market import open_market
from podracer.market.scaling import fit_scaler
from podracer.market.synthetic import PlantedSettings, planted_market
from podracer.market.windows import Window, Windows
from podracer.pods import pod, pools
from podracer.pods.device import resolve_device
from podracer.pods.market_rollouts import MarketRollouts
from podracer.pods.settings import PodSettings
from podracer.pods.spec import AgentSpec, PodSpec, load_result
from podracer.pods.trainer import Trainer

WINDOWS = Windows(
    Window("train", 0, 200), Window("selection", 210, 300), Window("lockbox", 310, 400)
)


@pytest.fixture(scope="module")
def market(tmp_path_factory):
    made = planted_market(PlantedSettings(num_sessions=400, num_assets=4))
    return made.save(tmp_path_factory.mktemp("market") / "m")


def spec(market, folder, num_agents=4, **settings):
    defaults = {
        "agents": num_agents,
        "steps": 600,
        "cohorts": 4,
        "envs_per_cohort": 4,
        "horizon_bars": 8,
    }
    return PodSpec(
        name="g1-p1",
        generation=1,
        seed=3,
        agents=tuple(
            AgentSpec(name=f"a{i}", hyperparameters=Hyperparameters(gain=1.0 + i))
            for i in range(num_agents)
        ),
        settings=PodSettings(**defaults | settings),
        env=EnvSettings(),
        windows=WINDOWS,
        market_hash=open_market(market).hash,
        market_folder=market,
        folder=folder,
    )


def trainer(pod_spec):
    opened = open_market(pod_spec.market_folder)
    scaler = fit_scaler(opened.market_features_DF, WINDOWS.train)
    rollouts = MarketRollouts(
        observe(opened, scaler, pod_spec.env),
        price_tables(opened, pod_spec.env),
        pod_spec.env,
        pod_spec.settings,
        WINDOWS.train,
        len(pod_spec.agents),
    )
    return Trainer(pod_spec, rollouts)


FULL = NetworkSettings(head_hidden=4, mlp_hidden=8, critic_hidden=8)
DISCRETE = EnvSettings(action={"mode": "discrete"})
REMEMBERING = {
    memory: NetworkSettings(
        mlp_hidden=8, critic_hidden=8, memory=memory, memory_bars=5, memory_hidden=4
    )
    for memory in ("stack", "gru", "lstm")
}
REPLAY = {"warmup_steps": 100, "batch_size": 16, "updates_per_step": 0.1, "capacity_steps": 150}
ALGORITHMS = [
    ("ppo", NetworkSettings(), EnvSettings()),
    ("ppo", FULL, EnvSettings()),
    ("ppo", FULL, DISCRETE),
    ("a2c", FULL, EnvSettings()),
    ("ddpg", FULL, EnvSettings()),
    ("td3", FULL, EnvSettings()),
    ("sac", FULL, EnvSettings()),
    ("sac", NetworkSettings(critic_hidden=8), EnvSettings()),
    ("dqn", FULL, DISCRETE),
    ("ppo", REMEMBERING["gru"], EnvSettings()),
    ("a2c", REMEMBERING["lstm"], EnvSettings()),
    ("td3", REMEMBERING["stack"], EnvSettings()),
]
each_algorithm = pytest.mark.parametrize(("algorithm", "network", "env"), ALGORITHMS)


def learning(market, folder, algorithm, network, env, num_agents=4, **settings):
    """A pod of any algorithm, in a folder of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"replay": REPLAY} | settings
    made = spec(market, folder, num_agents, algorithm=algorithm, network=network, **settings)
    return made.model_copy(update={"env": env})


@each_algorithm
def test_a_resumed_training_has_the_same_bits_as_an_undisturbed_one(
    market, tmp_path, algorithm, network, env
):
    kind = algorithm, network, env
    undisturbed = trainer(learning(market, tmp_path / "undisturbed", *kind))
    for _ in range(6):
        undisturbed.iterate()
    killed = trainer(learning(market, tmp_path / "killed", *kind))
    for _ in range(3):
        killed.iterate()
    checkpoint.save(tmp_path / "state", *killed.state())
    killed.iterate()  # work that is lost
    second = trainer(learning(market, tmp_path / "killed", *kind))
    second.restore(*checkpoint.load(tmp_path / "state"))
    for _ in range(3):
        second.iterate()
    assert second.steps == undisturbed.steps
    for name, tensor in undisturbed.state()[0].items():
        assert torch.equal(tensor, second.state()[0][name]), name


@each_algorithm
def test_a_population_is_its_agents_one_by_one(market, tmp_path, algorithm, network, env):
    """In the pod's first updates; sums of another order (one agent, another path) leave 1e-6."""
    kind = algorithm, network, env
    together = trainer(learning(market, tmp_path / "together", *kind))
    for _ in range(2):
        together.iterate()
    for p in range(4):
        alone_spec = learning(market, tmp_path / str(p), *kind)
        alone = trainer(alone_spec.model_copy(update={"agents": alone_spec.agents[p : p + 1]}))
        for _ in range(2):
            alone.iterate()
        found, expected = (
            alone.population.weights.flat_PW[0],
            together.population.weights.flat_PW[p],
        )
        assert torch.allclose(found, expected, atol=1e-5), (p, (found - expected).abs().max())


@each_algorithm
def test_a_pod_of_any_algorithm_leaves_agents_that_act_from_their_checkpoints(
    market, tmp_path, algorithm, network, env
):
    chosen = learning(market, tmp_path / "pod", algorithm, network, env, num_agents=2)
    result = pod.train(chosen)
    assert not list((tmp_path / "pod").glob("state*"))
    assert all(a.failure is None for a in result.agents)
    opened = open_market(market)
    agents = load_agents([result.agents[1].checkpoint])
    again = rollout(agents.policy(opened), opened, WINDOWS.selection, env)
    assert np.array_equal(again.returns_RE[:, 0], result.agents[1].selection_returns_R)
    both = load_agents([a.checkpoint for a in result.agents])
    assert backtest(opened, WINDOWS, env, both, agents, seed=1).names[0] == "champion"
    session, held_A = 250, np.array([0.4, 0.3, 0.0, 0.1])
    bars = agents.acting.weights.layout.memory_bars
    row = [
        [0.2, *held_A],
        opened.asset_features_DAK[session].ravel(),
        opened.market_features_DF[session - bars + 1 : session + 1].ravel(),
    ]
    from_row = agents.desired_weights(np.concatenate(row)[None])[0]
    asked = agents.policy(opened).decide(session, held_A[:, None])
    if asked.kind == "weights":
        gap_A = asked.wanted_AE[:, 0] - held_A
        move_A = np.where(np.abs(gap_A) >= asked.band_E[0], asked.scale_E[0] * gap_A, 0.0)
    else:
        move_A = asked.wanted_AE[:, 0] * asked.scale_E[0]
    assert from_row == pytest.approx(np.maximum(held_A + move_A, 0), abs=1e-6)


@pytest.mark.parametrize("algorithm", ["td3", "dqn"])
def test_a_pod_killed_in_the_middle_of_a_replay_ends_as_an_undisturbed_one(
    market, tmp_path, algorithm
):
    env = DISCRETE if algorithm == "dqn" else EnvSettings()
    kind = {"steps": 4_000, "checkpoint_every": 3}
    undisturbed = pod.train(learning(market, tmp_path / "a", algorithm, FULL, env, **kind))
    killed = learning(market, tmp_path / "b", algorithm, FULL, env, **kind)
    workers = pools.Workers(1)
    try:
        pool = pools.ProcessPool(workers)
        pool.submit(killed)
        while not (tmp_path / "b" / "state.json").exists():
            time.sleep(0.01)
        (worker,) = workers._all[-1]._processes.values()
        os.kill(worker.pid, signal.SIGKILL)
        survived = pool.next_finished()
    finally:
        workers.close()
    assert [a.weights_hash for a in survived.agents] == [a.weights_hash for a in undisturbed.agents]


def test_a_replay_that_is_gone_is_said_to_and_the_training_starts_anew(market, tmp_path):
    one = trainer(learning(market, tmp_path / "a", "td3", FULL, EnvSettings()))
    one.iterate()
    tensors, facts = one.state()
    file = tmp_path / "a" / "state-replay.bin"
    damaged = bytearray(file.read_bytes())
    damaged[9] ^= 1

    def refused(message):
        other = trainer(learning(market, tmp_path / "a", "td3", FULL, EnvSettings()))
        before = other.population.weights.flat_PW.clone()
        with pytest.raises(CheckpointError, match=message):
            other.restore(tensors, facts)
        assert torch.equal(other.population.weights.flat_PW, before)

    file.write_bytes(damaged)
    refused("the replay's file is damaged or of another training")
    file.unlink()
    refused("the replay's file is gone or of another size")


@pytest.mark.parametrize(("algorithm", "network"), [("ppo", FULL), ("td3", FULL), ("sac", FULL)])
def test_nothing_is_learnt_of_what_follows_the_end_of_an_episode(
    market, tmp_path, algorithm, network
):
    """Two trainings that differ only in rows after the end of episodes end with the same weights."""
    env = EnvSettings(terminations={"drawdown_limit": {"fraction": 0.01}})
    weights = []
    for poison in (0.0, 7.0):
        made = learning(
            market, tmp_path / str(poison), algorithm, network, env, horizon_bars=16,
        )  # fmt: skip
        learnt = trainer(made)
        collect = learnt._rollouts.collect

        def changed(agents, collect=collect, poison=poison):
            lived = collect(agents)
            assert 0.02 < float((lived.is_open_PCTE == 0).float().mean()) < 0.9
            waits_PCTE = 1 - lived.is_open_PCTE
            return lived._replace(
                reward_PCTE=lived.reward_PCTE,
                action_PCTEN=lived.action_PCTEN + poison * waits_PCTE[..., None],
                noise_PCTEx=lived.noise_PCTEx + poison * waits_PCTE[..., None],
            )

        learnt._rollouts.collect = changed
        for _ in range(2):
            learnt.iterate()
        weights.append(learnt.population.weights.flat_PW)
        assert not learnt.failures
    # What waits has no advantage and no error; sums of zeros in another order leave nothing.
    assert torch.allclose(*weights, atol=1e-6)


def child_of(parent, pod_spec):
    """The pod's first agent becomes a child."""
    child = pod_spec.agents[0].model_copy(
        update={
            "parent": parent.name,
            "parent_hash": parent.weights_hash,
            "parent_checkpoint": parent.checkpoint,
        }
    )
    return pod_spec.model_copy(update={"agents": (child, *pod_spec.agents[1:])})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"network": FULL}, "has another network"),
        # As many weights as the parent has.
        ({"network": NetworkSettings(mlp_hidden=8, activation="relu")}, "has another network"),
        ({"algorithm": "a2c"}, r"has another algorithm \(ppo, expected a2c\)"),
    ],
)
def test_a_parent_of_another_kind_is_refused(market, tmp_path, settings, message):
    network = NetworkSettings(mlp_hidden=8)
    parent = pod.train(spec(market, tmp_path / "pod", network=network)).agents[0]
    child_spec = spec(market, tmp_path / "child", **{"network": network} | settings)
    with pytest.raises(CheckpointError, match=message):
        trainer(child_of(parent, child_spec))


def test_a_pod_whose_agents_are_damaged_is_trained_anew_with_the_same_bits(market, tmp_path):
    pod_spec = spec(market, tmp_path / "pod")
    before = pod.train(pod_spec)
    (file,) = (tmp_path / "pod").glob("a1-*.safetensors")
    file.write_bytes(file.read_bytes()[:-4] + b"xxxx")
    with pytest.raises(CheckpointError, match="damaged or changed"):
        trainer(child_of(before.agents[1], spec(market, tmp_path / "child")))
    after = pod.train(pod_spec)
    assert [a.weights_hash for a in after.agents] == [a.weights_hash for a in before.agents]
    trainer(child_of(after.agents[1], spec(market, tmp_path / "child")))


def test_a_state_of_another_spec_is_refused(market, tmp_path):
    one, other = trainer(spec(market, tmp_path)), trainer(spec(market, tmp_path, steps=700))
    with pytest.raises(CheckpointError, match="belongs to another specification"):
        other.restore(*one.state())


def test_an_agent_does_not_depend_on_how_many_train_beside_it(market, tmp_path):
    few, many = trainer(spec(market, tmp_path, 2)), trainer(spec(market, tmp_path, 6))
    for _ in range(3):
        few.iterate()
        many.iterate()
    assert torch.equal(few.population.weights.flat_PW, many.population.weights.flat_PW[:2])
    assert not torch.equal(many.population.weights.flat_PW[0], many.population.weights.flat_PW[1])


def test_a_pod_leaves_a_result_that_is_not_trained_twice(market, tmp_path):
    pod_spec = spec(market, tmp_path / "pod")
    result = pod.train(pod_spec)
    key, stored = load_result(tmp_path / "pod")
    assert key == pod_spec.key
    for one, other in zip(result.agents, stored.agents, strict=True):
        assert one.weights_hash == other.weights_hash
        assert np.array_equal(one.selection_returns_R, other.selection_returns_R)
        assert len(one.selection_returns_R) == WINDOWS.selection.num_returns
    again = pod.train(pod_spec)
    assert again.cpu_seconds == stored.cpu_seconds
    changed = pod.train(spec(market, tmp_path / "pod", steps=100))
    assert changed.steps < result.steps


def test_a_child_starts_from_its_parents_weights_and_moments_and_moves(market, tmp_path):
    parent = pod.train(spec(market, tmp_path / "pod")).agents[0]
    child_spec = child_of(parent, spec(market, tmp_path / "child"))
    child = child_spec.agents[0]
    young = trainer(child_spec)
    tensors, _ = checkpoint.load(parent.checkpoint)
    assert torch.equal(young.population.weights.flat_PW[0], tensors["weights"])
    assert torch.equal(young.population.mean_PW[0], tensors["mean"])
    young.iterate()
    assert not torch.equal(young.population.weights.flat_PW[0], tensors["weights"])
    wrong = child.model_copy(update={"parent_hash": "other"})
    with pytest.raises(CheckpointError, match="was trained on another market or has changed"):
        trainer(child_spec.model_copy(update={"agents": (wrong, *child_spec.agents[1:])}))


def test_an_agent_with_a_non_finite_loss_fails_alone_with_the_step(market, tmp_path):
    healthy = spec(market, tmp_path / "healthy")
    sick = healthy.agents[1].model_copy(
        update={"hyperparameters": Hyperparameters(gain=2.0, learning_rate=1e38)}
    )
    poisoned = healthy.model_copy(
        update={
            "agents": (healthy.agents[0], sick, *healthy.agents[2:]),
            "folder": tmp_path / "sick",
        }
    )
    one, other = pod.train(healthy), pod.train(poisoned)
    failed = other.agents[1]
    assert failed.failure.startswith("non-finite loss at environment step ")
    assert failed.selection_returns_R is None
    for i in (0, 2, 3):
        assert one.agents[i].weights_hash == other.agents[i].weights_hash


def test_a_result_of_another_spec_is_replaced_also_while_progress_is_noted(market, tmp_path):
    pools.train_with_progress(spec(market, tmp_path / "pod"))
    changed = spec(market, tmp_path / "pod", steps=600)
    again = pools.train_with_progress(changed)
    fresh = pod.train(changed.model_copy(update={"folder": tmp_path / "fresh"}))
    assert [a.weights_hash for a in again.agents] == [a.weights_hash for a in fresh.agents]


def test_devices_that_cannot_be_had_are_refused_and_auto_falls_back_visibly():
    assert resolve_device("cpu") == ("cpu", None)
    device, remark = resolve_device("auto")
    assert device == "cpu"
    assert "using the CPU" in remark
    with pytest.raises(DeviceError, match=r"pod\.device: cuda was asked for, but"):
        resolve_device("cuda")


@pytest.mark.parametrize(
    "declared",
    [
        {"action": {"mode": "notional"}, "shares": "fractional"},
        {"action": {"mode": "shares", "max_trade_shares": 500}},
        {
            "action": {"cash_action": True},
            "rewards": {"differential_sharpe": {}, "turnover_penalty": {"weight": 0.1}},
            "terminations": {"drawdown_limit": {"fraction": 0.02}},
            "episode": {"cost_scales": [0.5, 2]},
            "observations": {"asset_features": {}, "cash": {}},
        },
    ],
)
def test_a_pod_trains_in_any_declared_environment(market, tmp_path, declared):
    chosen = spec(
        market, tmp_path, 2, network=NetworkSettings(mlp_hidden=8, critic_hidden=8)
    ).model_copy(update={"env": EnvSettings(**declared)})
    result = pod.train(chosen)
    assert all(a.failure is None and a.has_traded for a in result.agents)
    first, second = (a.selection_returns_R for a in result.agents)
    assert not np.array_equal(first, second)
    agents = load_agents([result.agents[0].checkpoint])
    opened = open_market(market)
    again = rollout(agents.policy(opened), opened, WINDOWS.selection, chosen.env)
    assert np.array_equal(again.returns_RE[:, 0], first)
    report = backtest(opened, WINDOWS, chosen.env, agents, agents, seed=1)
    assert report.names[:2] == ("champion", "leader")
    assert np.isfinite(report.returns_RS).all()
    assert report.costs.total[0] > 0


@pytest.mark.gpu
def test_cuda_is_refused_as_not_built_yet():
    with pytest.raises(DeviceError, match="the GPU path is not built yet"):
        resolve_device("cuda")


def test_a_market_that_is_not_the_one_of_the_spec_is_refused(market, tmp_path):
    other = spec(market, tmp_path).model_copy(update={"market_hash": "0" * 64})
    with pytest.raises(MarketDataError, match="expects market 000000000000"):
        pod.train(other)


def test_odd_groups_are_refused():
    with pytest.raises(ValueError, match="must be even, got 7"):
        PodSettings(agents=7)


def test_workers_give_the_bits_of_this_process_and_survive_a_kill(market, tmp_path):
    here = pod.train(spec(market, tmp_path / "here"))
    workers = pools.Workers(1)
    try:
        pool = pools.ProcessPool(workers)
        pool.submit(spec(market, tmp_path / "there"))
        there = pool.next_finished()
        assert [a.weights_hash for a in there.agents] == [a.weights_hash for a in here.agents]
        long = spec(market, tmp_path / "long", steps=30_000)
        pool.submit(long)
        while pools.read_progress(tmp_path / "long") == 0:
            time.sleep(0.05)
        (worker,) = workers._all[-1]._processes.values()
        os.kill(worker.pid, signal.SIGKILL)
        survived = pool.next_finished()
    finally:
        workers.close()
    undisturbed = pod.train(long.model_copy(update={"folder": tmp_path / "undisturbed"}))
    assert [a.weights_hash for a in survived.agents] == [a.weights_hash for a in undisturbed.agents]


def die(_spec):
    os._exit(1)


def test_a_pod_whose_worker_always_dies_is_given_up(market, tmp_path, monkeypatch):
    workers = pools.Workers(1)
    monkeypatch.setattr(pools, "train_with_progress", die)
    try:
        with pytest.raises(PodError, match="its worker died 3 times"):
            workers.train(spec(market, tmp_path))
    finally:
        workers.close()
