"""Any training: a function, a folder, a manifest, supervised fine-tuning, loops and chains."""

from __future__ import annotations

from acceptance.checks import ends, file_has, job_is, no_pods, says
from acceptance.scene import Scene
from acceptance.stage import submit

FUNCTION = """
def fit(steps: int, word: str = "none"):
    import os
    with open("/workspace/output-of-rank-" + os.environ.get("PET_NODE_RANK", "0"), "w") as file:
        file.write(f"{word} {steps}")
    print("rank", os.environ.get("RANK"), "of", os.environ.get("WORLD_SIZE"), "has done", steps, "steps")
    return {"steps": steps}
"""
PROGRAM = """
import json, os, sys
from helper import double
print("helped to", double(int(sys.argv[1])))
"""
MANIFEST = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: "{name}"}
spec:
  runtimeRef: {kind: TrainingRuntime, name: torch-distributed}
  trainer: {image: "{launcher}", command: [python3, -c, "print('said by the manifest')"], numNodes: 2}
"""
OWN = ("--runtime-kind", "TrainingRuntime", "--runtime", "torch-distributed")

SCENES = [
    Scene(
        "a function on two nodes",
        files={"steps.py": FUNCTION},
        act=submit(
            *OWN,
            "--func",
            "{folder}/steps.py:fit",
            "--func-args",
            '{"steps": 3, "word": "seven"}',
            "--num-nodes",
            "2",
            "--workspace",
            "pvc://{claim}",
        ),
        check=(
            ends(0),
            says("rank 0 of 2 has done 3 steps", "succeeded"),
            job_is("Complete"),
            file_has("runs/{name}/output-of-rank-1", "seven 3"),
        ),
        marks=("quick",),
    ),
    Scene(
        "a folder of code",
        files={"code/train.py": PROGRAM, "code/helper.py": "def double(number):\n    return 2 * number\n"},
        act=submit(*OWN, "--image", "{launcher}", "--code", "{folder}/code", "--command", "python3 train.py 21"),
        check=(ends(0), says("helped to 42"), job_is("Complete")),
    ),
    Scene(
        "a manifest",
        files={"job.yaml": MANIFEST},
        act=lambda stage: stage.trainwright("submit", "-f", "{folder}/job.yaml", "--wait", "--logs"),
        check=(ends(0), says("said by the manifest"), job_is("Complete"), no_pods()),
        marks=("quick",),
    ),
]
