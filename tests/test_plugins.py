"""Functors of another package: a real one, built and installed, with no edit to ours."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("plugins")

PYPROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "podracer-calm"
version = "1.0"
[tool.setuptools]
py-modules = ["podracer_calm"]
[project.entry-points."podracer.rewards"]
{reward_name} = "podracer_calm:{reward}"
[project.entry-points."podracer.observations"]
weekday = "podracer_calm:Weekday"
tomorrow = "podracer_calm:Tomorrow"
"""
MODULE = '''
import numpy as np
from pydantic import Field
from podracer.envs.functors import Columns, MarketObservation, Reward, RewardParameters

class Calm(Reward):
    """Minus the absolute log return."""

    class Parameters(RewardParameters):
        power: float = Field(1.0, gt=0, description="Exponent.")

    def __call__(self, earned):
        return -np.abs(earned.log_return_E) ** self.parameters.power

class Weekday(MarketObservation):
    """Day of the week, 0 to 1."""
    is_scaled = False

    def columns(self, market):
        days = (market.dates_D.astype("datetime64[D]").astype(int) + 3) % 7
        return Columns(days[:, None] / 4.0, ("weekday",))

class Tomorrow(MarketObservation):
    """Looks ahead."""

    def columns(self, market):
        price = market.price_DA[:, 0]
        return Columns(np.append(price[1:] / price[:-1], 1.0)[:, None], ("tomorrow",))

class Mute(Reward):
    """Says nothing."""

not_a_functor = 3
'''


def install(folder: Path, reward_name: str = "calm", reward: str = "Calm") -> Path:
    """Build and install the package into a folder of its own; returns the folder."""
    source, site = folder / "source", folder / "site"
    source.mkdir()
    (source / "pyproject.toml").write_text(PYPROJECT.format(reward_name=reward_name, reward=reward))
    (source / "podracer_calm.py").write_text(MODULE)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--target", str(site)]
    subprocess.run([*pip, *options, str(source)], check=True, capture_output=True)
    return site


def podracer(site: Path, *arguments: str) -> subprocess.CompletedProcess:
    """Run the command line with the package on the path, as a user would who had installed it."""
    code = "import sys; from flows.cli import main; sys.argv[0] = 'podracer'; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=os.environ | {"PYTHONPATH": str(site), "COLUMNS": "200", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return install(tmp_path_factory.mktemp("plugin"))


def test_an_installed_package_adds_functors_with_no_edit_of_ours(site):
    chosen = [
        "-s",
        "env.rewards={calm: {power: 2}}",
        "-s",
        "env.observations={asset_features: , weekday: }",
    ]
    shown = podracer(site, "env", "explain", *chosen)
    assert shown.returncode == 0, shown.stderr
    assert "rewards.calm" in shown.stdout
    assert "power 2.0" in shown.stdout
    assert "Minus the absolute log return." in shown.stdout
    schema = json.loads(podracer(site, "env", "schema").stdout)
    assert "calm" in schema["$defs"]["RewardSet"]["properties"]
    refused = podracer(site, "env", "explain", "-s", "env.rewards.calm.powr=2")
    assert refused.returncode == 2
    assert (
        "'env.rewards.calm.powr' is not a setting. Did you mean 'env.rewards.calm.power'?"
        in refused.stderr
    )
    assert "Traceback" not in refused.stderr


def test_other_code_of_a_package_is_another_environment(tmp_path):
    site = install(tmp_path)
    chosen = ["env", "explain", "-s", "env.rewards={calm: }"]
    before = podracer(site, *chosen).stdout.splitlines()[0]
    module = site / "podracer_calm.py"
    module.write_text(module.read_text().replace("return -np.abs", "return -2 * np.abs"))
    after = podracer(site, *chosen).stdout.splitlines()[0]
    assert before.startswith("environment ")
    assert after.startswith("environment ")
    assert before != after


def test_the_audit_runs_on_functors_of_users_and_names_the_one_that_leaks(site):
    found = podracer(
        site, "env", "audit", "--probes", "1", "-s", "data.dataset=mega6",
        "-s", "env.observations={asset_features: , weekday: , tomorrow: }",
    )  # fmt: skip
    assert found.returncode == 1, found.stderr
    lines = {line.split("│")[1].strip(): line for line in found.stdout.splitlines() if "│" in line}
    assert "LEAKS: 'tomorrow' on" in lines["env.observations.tomorrow"]
    assert "no look-ahead" in lines["env.observations.weekday"]


def test_a_foreign_reward_and_observation_are_used_by_the_face(site):
    script = """
import numpy as np
from podracer.envs.gym import open_face
face = open_face("planted", {"rewards": {"calm": {}}, "observations": {"cash": {}, "weekday": {}}}, num_envs=3)
face.reset(np.ones(3, dtype=bool), [np.random.default_rng(i) for i in range(3)])
before = face.equity_E.copy()
reward = face.step(np.random.default_rng(0).uniform(-1, 1, (3, 10))).reward_E
assert np.allclose(reward, -np.abs(np.log(face.equity_E / before)))
assert face.observation.shape == (3, 2)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ("excess", "Calm"),
            "package podracer-calm: its functor 'excess' takes a name of podracer.rewards",
        ),
        (
            ("calm", "Gone"),
            "its functor 'calm' (podracer_calm:Gone) cannot be loaded (AttributeError",
        ),
        (("calm", "Mute"), "its functor 'calm' (podracer_calm:Mute) does not define __call__"),
        (("calm", "not_a_functor"), "is not a subclass of podracer.envs.functors.Reward"),
    ],
)
def test_a_package_that_cannot_be_used_is_named_in_one_line(tmp_path, names, message):
    refused = podracer(install(tmp_path, *names), "env", "explain")
    assert refused.returncode == 2
    assert message in refused.stderr
    assert "Traceback" not in refused.stderr
