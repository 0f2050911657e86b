"""MPIJob (kubeflow.org/v1 and v2beta1): workers that run sshd, and a launcher that starts when they are ready."""

from __future__ import annotations

from trainwright.api.objects import Obj
from trainwright.migration import replica_job as old
from trainwright.migration.notes import Migrated, Notes

_SSHD = ["/usr/sbin/sshd", "-De"]
_HOSTS = "/etc/mpi"


def migrate_mpi_job(obj: Obj) -> Migrated:
    """Raises Invalid."""
    job = old.read(obj, "mpiReplicaSpecs", ("Launcher", "Worker"), Notes())
    launcher, workers = job.at("Launcher"), job.at("Worker")
    spec = job.obj["spec"]
    if launcher is None or workers is None:
        from trainwright.api.errors import Invalid, Problem

        missing = "Launcher" if launcher is None else "Worker"
        raise Invalid("MPIJob cannot be migrated", problems=[Problem(f"spec.mpiReplicaSpecs.{missing}", "Required value")])
    starts = launcher.container("mpi")
    works = workers.container(str(spec.get("mainContainer") or "mpi"))
    if not works.get("command"):
        works["command"] = list(_SSHD)
        if not spec.get("mpiImplementation"):
            job.notes.add(
                f"{workers.path}.template.spec.containers", "starts sshd now, which its image must have: kubectl exec is not used"
            )
    _note_rest(job, starts, spec)
    node = old.replicated_job(job, workers, "node", container=works, ancestor=False)
    works["name"] = "node"
    start = old.replicated_job(job, launcher, "launcher", count=1, container=starts, ancestor=True)
    start["dependsOn"] = [{"name": "node", "status": "Ready"}]
    policy: Obj = {
        "numProcPerNode": int(spec.get("slotsPerWorker") or 1),
        "mpiImplementation": "OpenMPI",
        "sshAuthMountPath": spec.get("sshAuthMountPath") or "/root/.ssh",
        "runLauncherAsNode": bool(spec.get("runLauncherAsWorker")),
    }
    nodes = workers.count + (1 if policy["runLauncherAsNode"] else 0)
    network = {"publishNotReadyAddresses": True}
    own = old.runtime(job, "mpi", {"numNodes": nodes, "mpi": policy}, [node, start], success=["launcher"], network=network)
    return Migrated([own, old.trainjob(job, old.reference(own))], job.notes.notes)


def _note_rest(job: old.ReplicaJob, starts: Obj, spec: Obj) -> None:
    implementation = spec.get("mpiImplementation") or "OpenMPI"
    if implementation != "OpenMPI":
        job.notes.add("spec.mpiImplementation", f"{implementation} is not kept: Trainer has OpenMPI only")
    if spec.get("launcherCreationPolicy"):
        job.notes.add("spec.launcherCreationPolicy", "is not kept: the launcher always waits until the workers are ready")
    words = [str(word) for word in [*(starts.get("command") or []), *(starts.get("args") or [])]]
    if any("discover_hosts" in word for word in words):
        job.notes.add(
            f"{job.replicas['Launcher'].path}.template.spec.containers",
            f"{_HOSTS}/discover_hosts.sh is not made: hosts are fixed",
        )
