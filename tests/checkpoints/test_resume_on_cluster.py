"""Generations of one step on a whole embedded cluster: the runtime's own init container decides, a small program trains."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from factories import train_request
from servers.s3_server import S3Server
from support.running_plane import running_plane
from support.waiting import eventually

from trainwright.api.kinds import CLAIM, CLUSTER_TRAINING_RUNTIME, SECRET, TRAINJOB
from trainwright.api.objects import named
from trainwright.checkpoints.export_run import export_run
from trainwright.checkpoints.pointers import latest_export_lookup
from trainwright.checkpoints.publish import export_checkpoint
from trainwright.embedded.plane import ControlPlane
from trainwright.jobs import Deadlines, Identity, Submission, TrainJobFailed, Waiting
from trainwright.jobs.wait.job_observer import WaitSettings
from trainwright.jobs.wait.run_step import run_to_end
from trainwright.storage.uri import StorageUri
from trainwright.workspace import run_folder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
STEP = Identity("kfp", "run", "train")
# Goes on from where it is told together with the other nodes, gets five steps further, and fails as often as `failures` says.
PROGRAM = """
import json, os, pathlib, shutil, sys, time
config, output, folder = map(pathlib.Path, sys.argv[1:4])
index = os.environ["JOB_COMPLETION_INDEX"]
resumed = json.loads(config.read_text()).get("resume_from_checkpoint", "")
start = int(resumed.rpartition("-")[2] or 0)
assert not resumed or (pathlib.Path(resumed) / "optimizer.pt").is_file()
with open(folder / "log", "a") as log:
    log.write(f"{index}:{start} ")
deadline = time.monotonic() + 30
while (folder / "log").read_text().count(f":{start} ") < int(os.environ["PET_NNODES"]):
    assert time.monotonic() < deadline, "the nodes go on from different checkpoints"
    time.sleep(0.02)
if index == "0":
    shutil.copytree(folder / "template", output / f"checkpoint-{start + 5}")
    (output / f"checkpoint-{start + 5}" / "trainer_state.json").write_text(json.dumps({"global_step": start + 5}))
    failures = int((folder / "failures").read_text())
    (folder / "failures").write_text(str(failures - 1))
    sys.exit(failures > 0)
"""


class Trained:
    """Jobs of that program, and what they say of where they went on from."""

    def __init__(self, plane: ControlPlane, folder: Path, template: Path):
        self.plane, self.folder = plane, folder
        (folder / "program.py").write_text(PROGRAM)
        template.rename(folder / "template")
        (folder / "log").touch()

    def claim(self, name: str) -> Path:
        """The folder of a new claim."""
        spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        metadata = {"name": name, "namespace": "default"}
        self.plane.cluster.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})
        assert self.plane.cluster.get(CLAIM, name, "default")
        return self.folder / "home/node/claims/default" / name

    def train(
        self,
        claim: str = "one",
        *,
        failures: int = 0,
        run: str = "run",
        latest: Callable[[Identity], str] | None = None,
        **fields: Any,
    ) -> str:
        """Train once, to the end or to its failure; returns `INDEX:STEP` of every start."""
        (self.folder / "failures").write_text(str(failures))
        (self.folder / "log").write_text("")
        command = ["python", str(self.folder / "program.py"), "/resume/trl.yaml", "/workspace/output", str(self.folder)]
        request = train_request(runtime="plain", workspace=f"pvc://{claim}", command=command, **fields)
        identity = Identity("kfp", run, "train")
        deadlines = Deadlines(queue=60, start=60, run=60)
        try:
            run_to_end(
                Submission(self.plane.cluster, request, identity, "default", latest_checkpoint=latest),
                Waiting(WaitSettings(deadlines=deadlines)),
            )
        except TrainJobFailed:
            assert failures > 1
        else:
            assert failures <= 1
        return " ".join(sorted((self.folder / "log").read_text().split()))


def checkpoints_in(output: Path) -> list[str]:
    return sorted(path.name for path in output.glob("checkpoint-*"))


@pytest.fixture
def trained(tmp_path: Path, write_checkpoint: Callable[..., Path]) -> Iterator[Trained]:
    with running_plane(tmp_path) as plane:
        runtime = plane.cluster.get(CLUSTER_TRAINING_RUNTIME, "trl-sft")
        node = named(runtime["spec"]["template"]["spec"]["replicatedJobs"], "node")
        assert node is not None
        node.pop("dependsOn")
        runtime["spec"]["template"]["spec"] = {"replicatedJobs": [node], "failurePolicy": {"maxRestarts": 1}}
        plane.cluster.create({**runtime, "metadata": {"name": "plain", "labels": runtime["metadata"]["labels"]}})
        yield Trained(plane, tmp_path, write_checkpoint(1))


def test_generations_resume_and_never_starts_afresh_but_its_restarted_pods_resume(trained: Trained) -> None:
    runs = trained.claim("one") / "runs"
    assert trained.train(failures=2) == "0:0 0:5"
    assert trained.train(failures=2) == "0:10 0:15"
    assert trained.train(failures=2, resume="never") == "0:0 0:5"
    assert checkpoints_in(runs / "run/output.previous-1") == [f"checkpoint-{step}" for step in (10, 15, 20, 5)]
    assert trained.train(failures=1, resume="never", num_nodes=2) == "0:0 0:5 1:0 1:5"
    assert trained.train(run="another") == "0:0", "another run of the claim does not resume from this one"
    assert checkpoints_in(runs / "another/output") == ["checkpoint-5"]
    assert checkpoints_in(runs / "run/output") == ["checkpoint-10", "checkpoint-5"]


def test_an_export_on_disk_and_on_a_claim_is_gone_on_from_by_all_nodes(trained: Trained) -> None:
    workspace = trained.claim("one")
    trained.train(failures=2)
    uri = str(StorageUri.from_path(trained.folder / "exports"))
    for exports in (uri, str(StorageUri.from_path(workspace / "exports"))):
        export_checkpoint(workspace / "runs/run/output", exports, source="run/job")
    trained.claim("two")
    assert trained.train("two", run="other", resume=uri, num_nodes=2, failures=2) == "0:10 0:15 1:10 1:15"
    assert trained.train("two", run="other", num_nodes=2) == "0:20 1:20"
    trained.claim("three")
    assert trained.train("three", run="third", resume="pvc://one/exports/checkpoint-10", failures=1) == "0:10 0:15"
    assert trained.train("one", run="fourth", resume="pvc://one/exports") == "0:10", "the export is on the workspace's own claim"


def test_auto_on_a_new_volume_goes_on_from_what_the_run_has_exported_to_a_bucket(
    trained: Trained, s3_server: S3Server, s3_folder: str
) -> None:
    secret = {name: base64.b64encode(value.encode()).decode() for name, value in s3_server.environment.items()}
    metadata = {"name": "store", "namespace": "default"}
    trained.plane.cluster.create({"apiVersion": "v1", "kind": SECRET.kind, "metadata": metadata, "data": secret})
    workspace = trained.claim("one")
    trained.train(failures=2)
    export_run(workspace, run_folder("run"), s3_folder, run="run")
    trained.claim("two")
    latest = latest_export_lookup(s3_folder)
    assert trained.train("two", failures=2, latest=latest, resume_secret="store", num_nodes=2) == "0:10 0:15 1:10 1:15"
    assert trained.train("two", latest=latest, resume_secret="store") == "0:20"
    trained.claim("three")
    assert trained.train("three", run="other", latest=latest, resume_secret="store") == "0:0"
    trained.claim("four")
    assert trained.train("four", run="fourth", resume=f"{s3_folder}/run", resume_secret="store") == "0:10"


def test_a_claim_that_is_asked_for_is_made_used_by_all_generations_and_goes_with_the_last(trained: Trained) -> None:
    cluster, new = trained.plane.cluster, "new/folder?size=1Gi&retain=delete"
    assert trained.train(new, failures=2) == "0:0 0:5"
    assert trained.train(new, previous_jobs="delete") == "0:10"
    assert (trained.folder / "home/node/claims/default/new/folder/runs/run/output/checkpoint-15").is_dir()
    (job,) = eventually(lambda: jobs if len(jobs := cluster.list(TRAINJOB).items) == 1 else None)
    assert cluster.get(CLAIM, "new", "default")["spec"]["accessModes"] == ["ReadWriteOnce"]
    cluster.delete(TRAINJOB, job["metadata"]["name"], "default")
    eventually(lambda: "new" not in [claim["metadata"]["name"] for claim in cluster.list(CLAIM).items], what="the claim gone")
