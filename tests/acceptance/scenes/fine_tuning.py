"""Supervised fine-tuning with TRL of a tiny model, which is made in the claim: one node, two, a lost pod, another run's weights."""

from __future__ import annotations

from support.waiting import eventually

from acceptance.checks import ends, file_has, job_is, says
from acceptance.scene import Scene
from acceptance.scenes.data import ROWS
from acceptance.stage import Stage
from acceptance.told import Told

MAKES_MODEL = """
import pathlib
from trainwright.quickstart.base_model import ensure_base_model
at = pathlib.Path("/claim/sources/built")
made = ensure_base_model(at, preset="tiny")
link = pathlib.Path("/claim/sources/model")
if not link.exists():
    import shutil
    shutil.copytree(made, link)
"""
LISTS = "import os, sys; print(os.listdir(sys.argv[1]) if os.path.isdir(sys.argv[1]) else '')"
SETTINGS = ("--settings", '{"batch_size": 2, "max_length": 64, "lora_rank": 4, "logging_steps": 1, "save_steps": 2, "cpu": true}')
ENV = ("--env", '{"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}')
OWN = ("--runtime-kind", "TrainingRuntime", "--runtime", "trl-sft", "--workspace", "pvc://{claim}", "--num-proc-per-node", "1")
SOURCES = ("--dataset-uri", "pvc://{claim}/sources/rows.jsonl", "--model-uri", "pvc://{claim}/sources/model")


def make_sources(stage: Stage) -> None:
    """A dataset and a tiny model in the claim, if they are not there yet."""
    stage.lay("sources/rows.jsonl", ROWS)
    stage.in_claim(MAKES_MODEL, seconds=600)


def options(steps: int, *more: str) -> tuple[str, ...]:
    """Options of a submission of that many steps."""
    return (*OWN, *SOURCES, *SETTINGS, "--settings", f"steps={steps}", *ENV, *more)


def _fine_tunes(steps: int, *more: str) -> object:
    def act(stage: Stage) -> Told:
        make_sources(stage)
        words = options(steps, *more)
        return stage.trainwright("submit", "--run-id", "{name}", "--wait", "--logs", *words, seconds=900)

    return act


def _loses_a_pod(stage: Stage) -> Told:
    make_sources(stage)
    words = ("submit", "--run-id", "{name}", "--wait", "--logs", *options(60))
    waiting = stage.begin(*words)
    eventually(lambda: "checkpoint-4" in stage.in_claim(LISTS, f"/claim/runs/{stage.name}/output"), 300, "a second checkpoint")
    (pod,) = [name for name in stage.running_pods() if "node" in name]
    stage.admin.kubectl("delete", "pod", pod, "-n", stage.namespace, "--wait=false")
    lost = waiting.wait(300)
    assert lost.code in (10, 12), lost
    return stage.trainwright(*words, seconds=900)


SCENES = [
    Scene(
        "on one node",
        _fine_tunes(4),
        (ends(0), says("loss", "succeeded"), job_is("Complete"), file_has("runs/{name}/output/checkpoint-4/trainer_state.json")),
    ),
    Scene(
        "SFT on two nodes",
        _fine_tunes(4, "--num-nodes", "2"),
        (ends(0), says("loss"), job_is("Complete"), file_has("runs/{name}/output/checkpoint-4/trainer_state.json")),
    ),
    Scene(
        "SFT goes on after a lost pod",
        _loses_a_pod,
        (ends(0), says("Starts from checkpoint-"), file_has("runs/{name}/output/checkpoint-60/trainer_state.json")),
    ),
]
