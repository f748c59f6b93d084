"""The learning study: classic control and locomotion tasks, with the settings of both sides.

The settings are near those that RL Zoo publishes for Stable-Baselines3 (constant rates, 2x64 networks);
both sides get the same. CartPole's DQN is slower and looks less far ahead, by a search on our side alone:
with RL Zoo's rates most seeds of neither side hold the pole for 500 steps. What differs: the layers of
our on-policy agents start from normal weights, SB3's PPO from orthogonal ones; our minibatches are drawn
for all seeds at once, SB3's for each; our advantages are normalised over a rollout, SB3's over a
minibatch. SB3's DQN moves its targets every environment step, ours every update: its rate is lowered so
that both go as far.
"""

from typing import Any, NamedTuple


class Task(NamedTuple):
    """One environment and algorithm.

    Attributes:
        env: Gymnasium's name of it.
        algorithm: ours.
        steps: environment steps of an agent.
        envs: of an agent at once.
        horizon: steps of each between updates.
        lowest: score of an agent that has learnt nothing.
        highest: score of one that has learnt everything; the two give the margin of 5 %.
        width: of both hidden layers.
        hyper: hyper-parameters in our words.
        shared: what all agents of a pod share, in our words.
        is_gate: whether it counts, or is only shown.
    """

    env: str
    algorithm: str
    steps: int
    envs: int
    horizon: int
    lowest: float
    highest: float
    width: int
    hyper: dict[str, float]
    shared: dict[str, Any]
    is_gate: bool = True

    @property
    def name(self) -> str:
        """Its name in tables and results."""
        return f"{self.env} {self.algorithm}"

    @property
    def activation(self) -> str:
        """SB3's default for the algorithm."""
        return "tanh" if self.algorithm in ("ppo", "a2c") else "relu"


CARTPOLE, ACROBOT, PENDULUM = "CartPole-v1", "Acrobot-v1", "Pendulum-v1"
LANDER, CHEETAH, ANT, HOPPER = "LunarLanderContinuous-v3", "HalfCheetah-v5", "Ant-v5", "Hopper-v5"
SMALL_STEPS = {"learning_rate": 1e-3, "critic_learning_rate": 1e-3, "discount": 0.99}
PENDULUM_REPLAY = {"batch_size": 256, "warmup_steps": 1_000, "capacity_steps": 20_000}

TASKS = (
    Task(CARTPOLE, "ppo", 100_000, 8, 32, 20, 500, 64,
         {"learning_rate": 1e-3, "discount": 0.98, "gae_lambda": 0.8, "clip": 0.2},
         {"epochs": 10, "minibatches": 4}),
    Task(CARTPOLE, "a2c", 100_000, 8, 5, 20, 500, 64,
         {"learning_rate": 7e-4, "discount": 0.99, "gae_lambda": 1.0}, {"normalise_advantages": False}),
    Task(CARTPOLE, "dqn", 100_000, 1, 4, 20, 500, 64,
         {"learning_rate": 3e-4, "discount": 0.98, "target_rate": 0.005, "exploration_chance": 0.04},
         {"batch_size": 64, "warmup_steps": 1_000, "capacity_steps": 100_000, "updates_per_step": 0.5,
          "exploration_steps": 16_000, "double": False, "duelling": False}),
    Task(ACROBOT, "ppo", 200_000, 16, 64, -500, -70, 64,
         {"learning_rate": 1e-3, "discount": 0.99, "gae_lambda": 0.94, "clip": 0.2},
         {"epochs": 4, "minibatches": 8}),
    Task(ACROBOT, "dqn", 200_000, 1, 4, -500, -70, 64,
         {"learning_rate": 6.3e-4, "discount": 0.99, "target_rate": 0.005, "exploration_chance": 0.1},
         {"batch_size": 128, "warmup_steps": 1_000, "capacity_steps": 50_000, "updates_per_step": 0.25,
          "exploration_steps": 24_000, "double": False, "duelling": False}),
    Task(PENDULUM, "ppo", 100_000, 4, 1_024, -1_600, -150, 64,
         {"learning_rate": 1e-3, "discount": 0.9, "gae_lambda": 0.95, "initial_std": 1.0},
         {"epochs": 10, "minibatches": 64}),
    Task(PENDULUM, "ddpg", 20_000, 1, 1, -1_600, -150, 64,
         SMALL_STEPS | {"exploration_noise": 0.1}, PENDULUM_REPLAY),
    Task(PENDULUM, "td3", 20_000, 1, 1, -1_600, -150, 64,
         SMALL_STEPS | {"exploration_noise": 0.1, "target_noise": 0.2}, PENDULUM_REPLAY),
    Task(PENDULUM, "sac", 20_000, 1, 1, -1_600, -150, 64,
         SMALL_STEPS | {"initial_std": 1.0}, PENDULUM_REPLAY),
    Task(LANDER, "ppo", 300_000, 16, 256, -200, 280, 64,
         {"learning_rate": 1e-3, "discount": 0.99, "gae_lambda": 0.98, "initial_std": 1.0},
         {"epochs": 4, "minibatches": 16}),
    Task(LANDER, "sac", 100_000, 1, 1, -200, 280, 64,
         {"learning_rate": 7e-4, "critic_learning_rate": 7e-4, "discount": 0.99, "target_rate": 0.01,
          "initial_std": 1.0},
         {"batch_size": 256, "warmup_steps": 5_000, "capacity_steps": 100_000}),
    Task(CHEETAH, "ppo", 500_000, 4, 512, -300, 3_000, 64,
         {"learning_rate": 3e-4, "discount": 0.99, "gae_lambda": 0.95, "initial_std": 1.0},
         {"epochs": 10, "minibatches": 32}, False),
    Task(ANT, "ppo", 500_000, 4, 512, -100, 3_000, 64,
         {"learning_rate": 3e-4, "discount": 0.99, "gae_lambda": 0.95, "initial_std": 1.0},
         {"epochs": 10, "minibatches": 32}, False),
    Task(HOPPER, "sac", 100_000, 1, 1, 0, 3_000, 64,
         {"learning_rate": 3e-4, "critic_learning_rate": 3e-4, "discount": 0.99, "initial_std": 1.0},
         {"batch_size": 256, "warmup_steps": 5_000, "capacity_steps": 100_000}, False),
)  # fmt: skip
