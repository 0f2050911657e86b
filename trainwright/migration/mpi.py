"""Migrates an MPIJob (kubeflow.org/v1 and v2beta1) to workers that run sshd and a launcher that connects to them."""

from __future__ import annotations

from trainwright.api import names
from trainwright.api.errors import Invalid, Problem
from trainwright.api.objects import Obj, copy_of, named
from trainwright.migration import placement as env
from trainwright.migration.new_objects import Framework, JobSetPlan, build_job, rename_container, runtime_result
from trainwright.migration.notes import MigrationResult, Notes
from trainwright.migration.old_names import rename_pods
from trainwright.migration.placement import Place, Placement
from trainwright.migration.replica_job import ReplicaJob, Replicas, ReplicaType, parse

_SSHD = ["/usr/sbin/sshd", "-De"]
_HOSTS = "/etc/mpi"
_LAUNCHER = "launcher"
_OPERATOR_V2 = "kubeflow.org/v2beta1"
_HYDRA = {"Intel": "I_MPI_HYDRA_HOST_FILE", "MPICH": "HYDRA_HOST_FILE"}
_FRAMEWORK = Framework("mpi", "", lambda _place: [])


def migrate_mpi_job(obj: Obj) -> MigrationResult:
    """Migrate an MPIJob. Raises Invalid."""
    is_v2 = obj.get("apiVersion") == _OPERATOR_V2
    types = (ReplicaType("Worker", replicas=0), ReplicaType("Launcher", "OnFailure" if is_v2 else "Never", only_one=True))
    job = parse(obj, "mpiReplicaSpecs", types, Notes())
    launcher, workers = job.first_of("Launcher"), job.first_of("Worker")
    if launcher is None:
        raise Invalid("MPIJob cannot be migrated", problems=[Problem("spec.mpiReplicaSpecs.Launcher", "Required value")])
    if is_v2 and workers is None and "Worker" in job.replicas:  # no number means none
        path = f"{job.replicas['Worker'].path}.replicas"
        raise Invalid("MPIJob cannot be migrated", problems=[Problem(path, "Invalid value: must be greater than or equal to 1")])
    places = [Place(_LAUNCHER, launcher, 1)]
    if workers is not None:
        places.insert(0, Place(names.NODE, workers, workers.count))
    placement = Placement(tuple(places))
    rename_pods(job, placement)
    _note_dropped_fields(job, launcher)
    is_node = bool(job.spec.get("runLauncherAsWorker")) if is_v2 else _has_gpus(launcher)
    jobs = [_launcher_job(job, placement, launcher, is_v2=is_v2, is_node=is_node)]
    if workers is not None:
        jobs.insert(0, _worker_job(job, placement, workers, is_v2=is_v2))
        _order(job, jobs, is_v2=is_v2, is_node=is_node)
    slots = int(job.spec.get("slotsPerWorker") or 1)
    policy: Obj = {
        "numProcPerNode": slots,
        "mpiImplementation": "OpenMPI",
        "sshAuthMountPath": job.spec.get("sshAuthMountPath") or "/root/.ssh",
        "runLauncherAsNode": is_node,
    }
    # Of the launcher there is one, whatever numNodes of the TrainJob is. Slots in the TrainJob: in a runtime 1 means one per GPU.
    trainer: Obj = {"numProcPerNode": slots}
    if workers is not None:
        trainer["numNodes"] = workers.count + is_node
    plan = JobSetPlan({"numNodes": 1, "mpi": policy}, [_LAUNCHER], trainer, {"publishNotReadyAddresses": True})
    return runtime_result(job, _FRAMEWORK, placement, jobs, plan)


def _order(job: ReplicaJob, jobs: list[Obj], *, is_v2: bool, is_node: bool) -> None:
    """Order worker and launcher, in place. The hostfile has this order, and rank 0 is on its first host.

    A launcher that is a node was the first one. But JobSet lets only a later job wait for the workers.
    """
    waits = not is_v2 or job.spec.get("launcherCreationPolicy") == "WaitForWorkersReady"
    if is_node and not waits:
        jobs.reverse()
        return
    jobs[1]["dependsOn"] = [{"name": names.NODE, "status": "Ready"}]
    if is_node:
        path = f"{job.replicas['Launcher'].path}.template.spec"
        job.notes.add(path, "the launcher was the first host of the hostfile, with rank 0, and is now the last one")


def _worker_job(job: ReplicaJob, placement: Placement, workers: Replicas, *, is_v2: bool) -> Obj:
    place = next(placement.of(workers))
    template = copy_of(workers.template)
    containers = template["spec"]["containers"]
    container = (None if is_v2 else named(containers, str(job.spec.get("mainContainer")))) or containers[0]
    path = f"{workers.path}.template.spec.containers[{containers.index(container)}]"
    if is_v2:
        if not container.get("command") and not container.get("args"):
            container["command"] = list(_SSHD)
        env.set_environment(container, [env.value("K_MPI_JOB_ROLE", "worker")], path, job.notes)
    else:
        command = container.get("command") or ["sleep"]
        if command[0].rpartition("/")[2] == "sleep":  # the operator's default too, whatever the arguments are
            container["command"] = list(_SSHD)
            container.pop("args", None)
            text = "now starts sshd, which the image must contain: kubectl exec is not used"
        else:
            text = "is unchanged, but must start sshd now: kubectl exec is not used"
        job.notes.add(f"{workers.path}.template.spec.containers", text)
    rename_container(job, place, template, container)
    return build_job(job, place, template, is_trainer=False, count=place.count)


def _launcher_job(job: ReplicaJob, placement: Placement, launcher: Replicas, *, is_v2: bool, is_node: bool) -> Obj:
    place = next(placement.of(launcher))
    template = copy_of(launcher.template)
    container = template["spec"]["containers"][0]
    variables = [env.value("K_MPI_JOB_ROLE", _LAUNCHER)] if is_v2 else []
    if not is_node:  # no GPUs, even on a host that has some
        variables += [env.value("NVIDIA_VISIBLE_DEVICES", ""), env.value("NVIDIA_DRIVER_CAPABILITIES", "")]
    if hosts := _HYDRA.get(str(job.spec.get("mpiImplementation"))):
        # The format of Trainer's file is another one, which is an error there. Without the file all ranks would run here.
        variables.append(env.value(hosts, f"{_HOSTS}/hostfile"))
    env.set_environment(container, variables, f"{launcher.path}.template.spec.containers[0]", job.notes)
    rename_container(job, place, template, container)
    return build_job(job, place, template, is_trainer=True, count=1)


def _has_gpus(launcher: Replicas) -> bool:
    """Whether the operator of v1 counted the launcher as a worker."""
    limits = [(container.get("resources") or {}).get("limits") or {} for container in launcher.template["spec"]["containers"]]
    return any("gpu" in name for names_of in limits for name in names_of)


def _note_dropped_fields(job: ReplicaJob, launcher: Replicas) -> None:
    implementation = job.spec.get("mpiImplementation") or "OpenMPI"
    if implementation != "OpenMPI":
        text = f"{implementation} is not kept: Trainer supports only OpenMPI, and its hostfile has another format"
        job.notes.add("spec.mpiImplementation", text)
    if job.spec.get("launcherCreationPolicy") == "AtStartup":
        job.notes.add("spec.launcherCreationPolicy", "is not kept: the launcher waits until the workers are ready")
    container = launcher.template["spec"]["containers"][0]
    arguments = [str(argument) for argument in [*(container.get("command") or []), *(container.get("args") or [])]]
    if any("discover_hosts" in argument for argument in arguments):
        job.notes.add(
            f"{launcher.path}.template.spec.containers",
            f"{_HOSTS}/discover_hosts.sh is not created: the hosts are fixed",
        )
