"""Migrates an MPIJob (kubeflow.org/v1 and v2beta1) to workers that run sshd and a launcher that starts when they are ready."""

from __future__ import annotations

from trainwright.api.objects import Obj
from trainwright.migration import replica_job
from trainwright.migration.notes import MigrationResult, Notes

_SSHD = ["/usr/sbin/sshd", "-De"]
_HOSTS = "/etc/mpi"


def migrate_mpi_job(obj: Obj) -> MigrationResult:
    """Migrate an MPIJob. Raises Invalid."""
    job = replica_job.parse(obj, "mpiReplicaSpecs", ("Launcher", "Worker"), Notes())
    launcher, workers = job.first_of("Launcher"), job.first_of("Worker")
    spec = job.obj["spec"]
    if launcher is None or workers is None:
        from trainwright.api.errors import Invalid, Problem

        missing = "Launcher" if launcher is None else "Worker"
        raise Invalid("MPIJob cannot be migrated", problems=[Problem(f"spec.mpiReplicaSpecs.{missing}", "Required value")])
    launcher_container = launcher.container("mpi")
    worker_container = workers.container(str(spec.get("mainContainer") or "mpi"))
    if not worker_container.get("command"):
        worker_container["command"] = list(_SSHD)
        if not spec.get("mpiImplementation"):
            job.notes.add(
                f"{workers.path}.template.spec.containers",
                "now starts sshd, which the image must contain: kubectl exec is not used",
            )
    _note_dropped_fields(job, launcher_container, spec)
    node = replica_job.build_replicated_job(job, workers, "node", container=worker_container, ancestor=False)
    worker_container["name"] = "node"
    launch = replica_job.build_replicated_job(job, launcher, "launcher", count=1, container=launcher_container, ancestor=True)
    launch["dependsOn"] = [{"name": "node", "status": "Ready"}]
    policy: Obj = {
        "numProcPerNode": int(spec.get("slotsPerWorker") or 1),
        "mpiImplementation": "OpenMPI",
        "sshAuthMountPath": spec.get("sshAuthMountPath") or "/root/.ssh",
        "runLauncherAsNode": bool(spec.get("runLauncherAsWorker")),
    }
    nodes = workers.count + (1 if policy["runLauncherAsNode"] else 0)
    network = {"publishNotReadyAddresses": True}
    runtime = replica_job.build_runtime(
        job, "mpi", {"numNodes": nodes, "mpi": policy}, [node, launch], success=["launcher"], network=network
    )
    return MigrationResult([runtime, replica_job.build_trainjob(job, replica_job.runtime_ref(runtime))], job.notes.notes)


def _note_dropped_fields(job: replica_job.ReplicaJob, launcher: Obj, spec: Obj) -> None:
    implementation = spec.get("mpiImplementation") or "OpenMPI"
    if implementation != "OpenMPI":
        job.notes.add("spec.mpiImplementation", f"{implementation} is not kept: Trainer supports only OpenMPI")
    if spec.get("launcherCreationPolicy"):
        job.notes.add("spec.launcherCreationPolicy", "is not kept: the launcher always waits until the workers are ready")
    arguments = [str(argument) for argument in [*(launcher.get("command") or []), *(launcher.get("args") or [])]]
    if any("discover_hosts" in argument for argument in arguments):
        job.notes.add(
            f"{job.replicas['Launcher'].path}.template.spec.containers",
            f"{_HOSTS}/discover_hosts.sh is not created: the hosts are fixed",
        )
