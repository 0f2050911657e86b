"""What the runtime trl-sft relies on in other people's programs, so that an upgrade which changes it is noticed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from trainwright.api.objects import named
from trainwright.runtimes import bundled_runtime


def node() -> dict[str, Any]:
    runtime = bundled_runtime("trl-sft")
    assert runtime is not None
    job = named(runtime["spec"]["template"]["spec"]["replicatedJobs"], "node")
    assert job is not None
    container: dict[str, Any] = job["template"]["spec"]["template"]["spec"]["containers"][0]
    return container


@pytest.mark.medium
def test_accelerate_still_leaves_the_process_group_alone_when_it_is_told_to() -> None:
    assert {"name": "FORK_LAUNCHED", "value": "1"} in node()["env"]
    code = (
        "import torch.distributed as d\nfrom accelerate.state import PartialState\n"
        "state = PartialState(cpu=True)\nd.is_initialized = lambda: True\nd.destroy_process_group = lambda group=None: 1 / 0\n"
        "state.destroy_process_group()"
    )
    done = subprocess.run([sys.executable, "-c", code], env={"FORK_LAUNCHED": "1"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.medium
def test_trl_still_passes_the_checkpoint_on_and_knows_our_arguments() -> None:
    import inspect

    from transformers import TrainingArguments
    from trl import ModelConfig, ScriptArguments, SFTConfig
    from trl.scripts import sft

    from trainwright.jobs.request.sft import SftSettings

    assert "resume_from_checkpoint=training_args.resume_from_checkpoint" in inspect.getsource(sft)
    known = {
        name for config in (ModelConfig, ScriptArguments, SFTConfig, TrainingArguments) for name in config.__dataclass_fields__
    }
    words = [*node()["command"], *node()["args"], *SftSettings(cpu=True, steps=1).arguments()]
    used = {word.removeprefix("--") for word in words if word.startswith("--")} - {"config"}
    assert used <= known
