"""Makes the trainer's image of a home run the scripted programs: TRL's scripts and the evaluation take no second, all else is real.

For tests of `make finetune` and other whole chains, which start their own cluster: `use_scripted_programs` before it starts.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import yaml

from trainwright.controlplane.environments.definition import FILE_NAME
from trainwright.runtimes.image import image

_FOLDER = Path(__file__).parent
TRAINER, EVALUATION, _LIBRARIES = (_FOLDER / f"scripted_{name}.py" for name in ("trainer", "evaluation", "libraries"))
SCRIPT = "TRAINER_SCRIPT"
"""The variable of the scripted trainer with the fields of its `Script` as JSON."""
PYTHON = """
import os, sys
words = sys.argv[1:]
if words[:2] == ["-m", "trainwright.evaluation.program"]:
    words = [EVALUATION, *words[2:]]
os.execv(sys.executable, [sys.executable, *words])
"""
"""In the place of the image's `python`, which also looks for the checkpoint to resume from."""


def use_scripted_programs(home: Path, programs: Path, **script: Any) -> None:
    """Let pods with the trainer's image in the cluster of `home` run the scripted programs, from a new folder that they can read.

    `script` has the fields of `scripted_trainer.Script`.
    """
    trainer, evaluation = scripted_programs(programs)
    python = programs / "python.py"
    python.write_text(PYTHON.replace("EVALUATION", repr(str(evaluation))), "utf-8")
    instead = {"torchrun": [sys.executable, os.fspath(trainer)], "python": [sys.executable, os.fspath(python)]}
    own = {
        "name": "torch",  # in the place of the environment that comes with the package
        "images": [image("trainer").rpartition(":")[0]],
        "requirements": ["trainwright"],
        "unlessInstalled": ["trainwright"],
        "programs": instead,
        "env": {SCRIPT: json.dumps(script)},
    }
    home.mkdir(parents=True, exist_ok=True)
    (home / FILE_NAME).write_text(yaml.safe_dump({"environments": [own]}), "utf-8")


def scripted_programs(folder: Path) -> tuple[Path, Path]:
    """Copies of the trainer and the evaluation in a new folder, since pods see no file of the checkout."""
    folder.mkdir(parents=True)
    shutil.copy(_LIBRARIES, folder)
    return Path(shutil.copy(TRAINER, folder)), Path(shutil.copy(EVALUATION, folder))
