"""What the README shows can be used as it stands."""

import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from podracer.config import load_settings

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
SECTIONS = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)


def merged(tree, changes):
    """Settings with others laid over them, section by section."""
    for key, value in changes.items():
        is_section = isinstance(value, dict) and isinstance(tree.get(key), dict) and key != "ranges"
        tree[key] = merged(tree[key], value) if is_section else value
    return tree


@pytest.mark.parametrize("text", SECTIONS)
def test_every_section_of_settings_loads_when_merged_into_the_default_file(tmp_path, text):
    yaml = YAML(typ="safe")
    path = tmp_path / "params.yaml"
    with path.open("w") as file:
        yaml.dump(merged(yaml.load(ROOT / "params.yaml"), yaml.load(text)), file)
    stated = load_settings(path).model_dump()
    for section, values in yaml.load(text).items():
        if isinstance(values, dict):
            assert values.keys() <= stated[section].keys()


def test_there_are_sections_for_prices_the_environment_and_algorithms():
    said = " ".join(SECTIONS)
    assert all(word in said for word in ("source: file", "costs:", "memory: gru", "td3", "dqn"))
