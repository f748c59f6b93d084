"""What agents are told; free of torch, so that reading a configuration stays quick."""

from typing import Literal

from pydantic import Field, model_validator

from podracer.settings import Settings

AlgorithmName = Literal["ppo", "a2c", "ddpg", "td3", "sac", "dqn"]
ON_POLICY = ("ppo", "a2c")
OFF_POLICY = ("ddpg", "td3", "sac", "dqn")

# Hidden layers from here on may multiply in bfloat16; narrower ones gain little by it.
WIDE = 128

_ALWAYS_READ = frozenset({"learning_rate", "discount", "gain", "speed"})
READ_BY: dict[str, frozenset[str]] = {
    "ppo": _ALWAYS_READ | {"gae_lambda", "clip", "entropy_bonus", "initial_std"},
    "a2c": _ALWAYS_READ | {"gae_lambda", "entropy_bonus", "initial_std"},
    "ddpg": _ALWAYS_READ | {"critic_learning_rate", "target_rate", "exploration_noise"},
    "td3": _ALWAYS_READ
    | {"critic_learning_rate", "target_rate", "exploration_noise", "target_noise"},
    "sac": _ALWAYS_READ | {"critic_learning_rate", "target_rate", "initial_std", "target_entropy"},
    "dqn": _ALWAYS_READ | {"target_rate", "exploration_chance"},
}


def read_by(algorithm: str, mode: str, has_critic: bool) -> frozenset[str]:
    """Return the hyper-parameters that an algorithm reads with an action mode."""
    read = READ_BY[algorithm]
    if mode != "weights":
        read -= {"speed"}
    if mode == "discrete":
        read -= {"gain", "initial_std"}
    return read if has_critic else read - {"gae_lambda"}


class Hyperparameters(Settings):
    """What may differ between the agents of one pod; the generator mutates these.

    `read_by` tells which of them an algorithm reads.
    """

    learning_rate: float = Field(
        5e-3,
        gt=0,
        description="Adam's step size, of the actor where the critic has its own. 5e-3 suits the "
        "linear head, 3e-4 … 1e-3 an MLP.",
    )
    critic_learning_rate: float = Field(
        1e-3, gt=0, description="Step size of the critics of DDPG, TD3 and SAC."
    )
    discount: float = Field(0.95, ge=0, lt=1, description="Discount of a reward one session later.")
    gae_lambda: float = Field(0.95, ge=0, le=1, description="Advantage smoothing, with a critic.")
    clip: float = Field(
        0.2, gt=0, lt=1, description="Largest change of the ratio that is rewarded."
    )
    entropy_bonus: float = Field(0.0, ge=0, description="Weight of the policy's entropy.")
    initial_std: float = Field(0.5, gt=0, description="Standard deviation of exploration at birth.")
    exploration_noise: float = Field(
        0.1, gt=0, description="DDPG, TD3: standard deviation that is added to actions in [-1, 1]."
    )
    target_noise: float = Field(
        0.2, gt=0, description="TD3: standard deviation that smooths the target's actions."
    )
    target_rate: float = Field(
        0.005, gt=0, le=1, description="Share of the way that target networks move each update."
    )
    target_entropy: float = Field(
        1.0, gt=0, description="SAC: wanted entropy is minus this for each action."
    )
    exploration_chance: float = Field(
        0.05, gt=0, le=1, description="DQN: chance of a random choice once learning is under way."
    )
    gain: float = Field(1.0, gt=0, description="Target weights are softmax(gain x score).")
    speed: float = Field(
        0.3,
        gt=0,
        le=1,
        description="Fraction of the way to its target an agent trades each session.",
    )


class PpoSettings(Settings):
    """What all agents of a pod share: on-policy algorithms."""

    epochs: int = Field(4, ge=1, description="PPO: passes over each batch.")
    minibatches: int = Field(4, ge=1, description="PPO: minibatches of whole cohorts in a pass.")
    normalise_advantages: bool = Field(
        True, description="Scale each agent's advantages to mean 0 and deviation 1."
    )


class ReplaySettings(Settings):
    """What all agents of a pod share: off-policy algorithms."""

    capacity_steps: int = Field(
        200_000, ge=1, description="Transitions of one agent that are remembered; older ones go."
    )
    capacity_mb: int = Field(
        4_096, ge=1, description="The most memory that a pod's replay may take, in MiB."
    )
    batch_size: int = Field(256, ge=1, description="Transitions of an agent in an update.")
    warmup_steps: int = Field(
        1_000, ge=0, description="Steps of an agent with random actions before it learns."
    )
    updates_per_step: float = Field(
        1.0, gt=0, le=64, description="Updates for each environment step of an agent."
    )
    policy_delay: int = Field(2, ge=1, description="TD3: critic updates for one of the actor.")
    double: bool = Field(True, description="DQN: the online network chooses, the target judges.")
    duelling: bool = Field(
        True, description="DQN: a value and advantages; with `double` this is D3QN."
    )
    exploration_steps: int = Field(
        10_000, ge=1, description="DQN: steps in which random choices fall to exploration_chance."
    )

    @model_validator(mode="after")
    def _holds_a_batch(self) -> "ReplaySettings":
        if self.capacity_steps < self.batch_size:
            raise ValueError(
                f"capacity_steps {self.capacity_steps} is less than a batch of {self.batch_size}: raise it "
                f"or lower batch_size"
            )
        return self


class NetworkSettings(Settings):
    """What the agents of a pod are made of; 0 switches a part off."""

    head: bool = Field(True, description="Use the per-asset head that all assets share.")
    head_hidden: int = Field(
        0, ge=0, le=256, description="Hidden units of the head beside its linear part."
    )
    mlp_hidden: int = Field(
        0, ge=0, le=1024, description="Width of the two-layer MLP that looks at everything."
    )
    critic_hidden: int = Field(
        0,
        ge=0,
        le=1024,
        description="Width of the critic's two layers; 0 uses the same-day mean of the cohort.",
    )
    activation: Literal["tanh", "relu"] = Field(
        "tanh", description="Of the hidden layers of MLP and critics."
    )
    precision: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="bfloat16: products of hidden layers of width 128 and more are rounded to it inside; "
        "weights, losses and outputs stay float32. Faster where the processor multiplies it.",
    )
    memory: Literal["none", "stack", "gru", "lstm"] = Field(
        "none",
        description="What MLP and critic see of earlier sessions: stack shows the last memory_bars side by "
        "side, gru and lstm are recurrent cells that run through them.",
    )
    memory_bars: int = Field(
        32, ge=2, le=1024, description="Sessions that a memory reaches back, with the present one."
    )
    memory_hidden: int = Field(16, ge=1, le=1024, description="Units of a recurrent cell.")


def require_fit(
    algorithm: str, network: NetworkSettings, replay: ReplaySettings, has_choices: bool
) -> None:
    """Refuse an algorithm whose networks or actions do not fit.

    Raises:
        ValueError: with what to change.
    """
    if algorithm == "dqn" and not has_choices:
        raise ValueError(
            "pod.algorithm: dqn chooses among a few actions, and these are continuous; set "
            "env.action.mode to discrete, or use ppo, a2c, ddpg, td3 or sac"
        )
    if algorithm in ("ddpg", "td3", "sac"):
        if has_choices:
            raise ValueError(
                f"pod.algorithm: {algorithm} needs continuous actions, and env.action.mode is "
                f"discrete; use dqn, ppo or a2c"
            )
        if not network.critic_hidden:
            raise ValueError(
                f"pod.network.critic_hidden: {algorithm} learns from critics; set it above 0, e.g. 64"
            )
    if network.memory != "none" and not network.mlp_hidden:
        raise ValueError(
            f"pod.network.memory: {network.memory} is read by the MLP; set pod.network.mlp_hidden above 0"
        )
    if network.memory in ("gru", "lstm") and algorithm not in ON_POLICY:
        raise ValueError(
            f"pod.network.memory: {network.memory} is trained on whole stretches of sessions, and "
            f"{algorithm} draws single ones from its replay; use stack, or ppo or a2c"
        )
    if algorithm == "dqn" and replay.duelling and not network.mlp_hidden:
        raise ValueError(
            "pod.replay.duelling: the value comes from the MLP; set pod.network.mlp_hidden above 0, or "
            "duelling to false"
        )
