"""Exports and what goes on from a checkpoint: restored files, lost pods, further attempts."""

from __future__ import annotations

from support.waiting import eventually

from acceptance.checks import ends, file_has, job_is, says
from acceptance.scene import Scene
from acceptance.stage import TORCH, Stage, submit
from acceptance.told import Told

# A training without any package: a checkpoint after each of twelve steps, from the last one that is there.
TRAINS = """
import json, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the first process of a container ignores it otherwise
output = pathlib.Path("/workspace/output")
done = max((int(path.parent.name[5:]) for path in output.glob("step-*/.complete")), default=0)
print("begins after step", done, flush=True)
for step in range(done + 1, int(sys.argv[1]) + 1):
    folder = output / f"step-{step}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "state.json").write_text(json.dumps({"step": step}))
    (folder / ".complete").write_text(json.dumps({"step": step}))
    print("step", step, flush=True)
    time.sleep(float(sys.argv[2]))
    if sys.argv[3:] == [str(step)]:  # until the pod is lost, however late that is
        time.sleep(3600)
"""
OWN = (*TORCH, "--workspace", "pvc://{claim}")


def trains(steps: int, pause: float, holds: str = "") -> tuple[str, ...]:
    """Options of a submission of that training, which `holds` after a step."""
    return (*OWN, "--code", "{folder}/code", "--command", f"python3 train.py {steps} {pause} {holds}".strip())


CODE = {"code/train.py": TRAINS}


def _exports(stage: Stage) -> Told:
    told = submit(*trains(3, 0))(stage)
    assert told.code == 0, told
    exported = stage.in_pod("export", "/claim/runs/{name}/output", "file:///claim/exports", "--run", "{name}")
    assert exported.code == 0, exported
    verified = stage.in_pod("verify", "file:///claim/exports/{name}/checkpoint-3")
    assert verified.code == 0, verified
    return stage.in_pod("restore", "file:///claim/exports/{name}/checkpoint-3", "/claim/restored/{name}")


def _damaged(stage: Stage) -> Told:
    told = submit(*trains(2, 0))(stage)
    assert told.code == 0, told
    exported = stage.in_pod("export", "/claim/runs/{name}/output", "file:///claim/exports", "--run", "{name}")
    assert exported.code == 0, exported
    damage = "import glob, sys\n[open(path, 'a').write('x') for path in glob.glob(sys.argv[1], recursive=True)]"
    stage.in_claim(damage, f"/claim/exports/{stage.name}/checkpoint-2/**/state.json")
    return stage.in_pod("restore", "file:///claim/exports/{name}/checkpoint-2", "/claim/restored/{name}")


def _loses_a_pod(stage: Stage) -> Told:
    waiting = stage.begin("submit", "--run-id", "{name}", "--wait", "--logs", *trains(12, 0, "3"))
    waiting.says("step 3", seconds=300)
    (pod,) = stage.running_pods()
    stage.admin.kubectl("delete", "pod", pod, "-n", stage.namespace, "--wait=false")
    return waiting.wait()


def _fails_and_goes_on(stage: Stage) -> Told:
    failing = submit(*OWN, "--code", "{folder}/code", "--command", "python3 fails.py")(stage)
    assert failing.code == 10, failing
    eventually(lambda: not stage.running_pods(), 60)
    return submit(*trains(4, 0))(stage)


SCENES = [
    Scene(
        "export, verify and restore",
        _exports,
        (ends(0), file_has("restored/{name}/state.json", '"step": 3')),
        files=CODE,
        marks=("quick",),
    ),
    Scene("a damaged export is not restored", _damaged, (ends(1), says("state.json")), files=CODE),
    Scene(
        "resume after a lost pod",
        _loses_a_pod,
        (
            ends(0),
            says("begins after step 3", "step 12"),
            job_is("Complete"),
            file_has("runs/{name}/output/step-12/state.json"),
        ),
        files=CODE,
        marks=("quick",),
    ),
    Scene(
        "the next attempt goes on",
        _fails_and_goes_on,
        (ends(0), says("begins after step 2"), file_has("runs/{name}/output/step-4/state.json")),
        files={**CODE, "code/fails.py": "import sys\nsys.argv = ['', '2', '0']\nexec(open('train.py').read())\nsys.exit(3)\n"},
    ),
]
