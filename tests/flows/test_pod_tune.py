"""`podracer pod tune` as a user runs it."""

import json

import pytest
from ruamel.yaml import YAML

from tests.flows.workspace import podracer, workspace

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return workspace(tmp_path_factory.mktemp("tune") / "w", seed=3)


def test_the_choice_is_written_through_a_link(folder):
    (folder / "params.yaml").rename(folder / "mine.yaml")
    (folder / "params.yaml").symlink_to("mine.yaml")
    done = podracer(folder, "pod", "tune", "--seconds", "1", "--cores", "1", "--write")
    assert done.returncode == 0, done.stderr
    assert "Written into params.yaml" in done.stdout
    assert (folder / "params.yaml").is_symlink()
    written = YAML(typ="safe").load((folder / "mine.yaml").read_text())
    found = json.loads((folder / "store/tuning.json").read_text())
    assert written["pool"] == {"workers": 1}
    assert {name: written["pod"][name] for name in found["after"]} == found["after"]
    assert podracer(folder, "config", "explain").returncode == 0
    assert not list(folder.glob(".*.yaml.*"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--write", "--set", "seed=4"], "--write: params.yaml would get sizes that were measured with --set seed=4"),
        (["--write", "--params", "/dev/stdin"], "--write: /dev/stdin is no regular file"),
        (["--write", "--params", "still.yaml"], "--write: still.yaml or its folder is read-only"),
        (["--set", "pod.device=cuda"], "pod.device: "),
        (["--memory-gb", "inf"], "Invalid value for '--memory-gb': Input should be less than or equal to 1000000"),
        (["--seconds", "nan"], "Invalid value for '--seconds': Input should be less than or equal to 3600"),
        (["--memory-gb", "0.2"], "--memory-gb: a worker with the present sizes takes about"),
    ],
)  # fmt: skip
def test_what_cannot_be_measured_or_written_is_refused_at_once(folder, arguments, message):
    (folder / "still.yaml").write_text((folder / "params.yaml").read_text())
    (folder / "still.yaml").chmod(0o444)
    before = (folder / "params.yaml").read_text()
    refused = podracer(folder, "pod", "tune", *arguments, stdin=before)
    assert refused.returncode == 2
    assert message in " ".join(refused.stderr.replace("│", "").split())
    assert "Traceback" not in refused.stderr
    assert (folder / "params.yaml").read_text() == before
    (folder / "still.yaml").unlink()
