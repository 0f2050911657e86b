"""The old kinds become TrainJobs that are admitted and materialize, with the environment that their programs read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.admission.admit import admit
from trainwright.api.errors import BadRequest, Invalid
from trainwright.materialize import materialize
from trainwright.migration import KINDS, MigrationResult, migrate, migrate_all
from trainwright.runtimes import bundled_runtime


def built(migrated: MigrationResult) -> dict[str, Any]:
    """The JobSet that the migrated objects become; fails where they are not admitted."""
    admitted = [admit(obj).object for obj in migrated.objects]
    trainjob = admitted[-1]
    name = trainjob["spec"]["runtimeRef"]["name"]
    runtime = admitted[0] if len(admitted) == 2 else bundled_runtime(name)
    assert runtime is not None
    assert runtime["metadata"]["name"] == name
    return next(obj for obj in materialize(trainjob, runtime) if obj["kind"] == "JobSet")


def pods(jobset: dict[str, Any]) -> dict[str, dict[str, Any]]:
    jobs = jobset["spec"]["replicatedJobs"]
    return {job["name"]: job["template"]["spec"]["template"]["spec"] for job in jobs}


def env_of(pod: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in pod["containers"][0].get("env") or []}


def job(kind: str, field: str, version: str = "kubeflow.org/v1", **replicas: Any) -> dict[str, Any]:
    """An old job with these replica types; a number stands for so many of a plain container."""
    specs = {}
    for name, wanted in replicas.items():
        spec = {"replicas": wanted} if isinstance(wanted, int) else dict(wanted)
        pod = {
            "containers": [{"name": "main", "image": "example.com/train:1", **spec.pop("container", {})}],
            **spec.pop("pod", {}),
        }
        specs[name] = {"template": {"spec": pod}, **spec}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "old", "namespace": "team"}, "spec": {field: specs}}


def said(migrated: MigrationResult, path: str) -> str:
    return next(note.text for note in migrated.notes if note.path.endswith(path))


def test_torchrun_with_default_restarts_becomes_a_trainjob_on_a_bundled_runtime() -> None:
    old = job(
        "PyTorchJob",
        "pytorchReplicaSpecs",
        Master={"container": {"command": ["torchrun", "t.py"]}},
        Worker={"replicas": 3, "container": {"command": ["torchrun", "t.py"]}},
    )
    old["spec"]["nprocPerNode"] = "2"
    migrated = migrate(old)
    (trainjob,) = migrated.objects
    assert trainjob["metadata"] == {"name": "old", "namespace": "team"}
    trainer = trainjob["spec"]["trainer"]
    assert (trainer["image"], trainer["command"], trainer["numNodes"], trainer["numProcPerNode"]) == (
        "example.com/train:1",
        ["torchrun", "t.py"],
        4,
        2,
    )
    env = env_of(pods(built(migrated))["node"])
    assert (env["PET_NNODES"], env["WORLD_SIZE"]) == ("4", "8")
    assert migrated.notes == []


def test_a_program_without_a_launcher_gets_what_the_operator_gave_it() -> None:
    migrated = migrate(job("PyTorchJob", "pytorchReplicaSpecs", Master=1, Worker=2))
    env = env_of(pods(built(migrated))["node"])
    assert env["MASTER_ADDR"] == "$(JOBSET_NAME)-node-0-0.$(JOBSET_NAME)"
    assert (env["WORLD_SIZE"], env["MASTER_PORT"]) == ("3", "23456")
    assert env["RANK"]["fieldRef"]["fieldPath"] == "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    names = list(env)
    assert names.index("JOBSET_NAME") < names.index("MASTER_ADDR")


def test_custom_pod_templates_become_a_separate_runtime() -> None:
    pod = {"volumes": [{"name": "data", "emptyDir": {}}], "nodeSelector": {"gpu": "a100"}}
    container = {"volumeMounts": [{"name": "data", "mountPath": "/data"}], "command": ["torchrun", "t.py"]}
    migrated = migrate(job("PyTorchJob", "pytorchReplicaSpecs", Worker={"replicas": 2, "pod": pod, "container": container}))
    runtime, trainjob = migrated.objects
    assert (runtime["kind"], runtime["metadata"]["namespace"]) == ("TrainingRuntime", "team")
    assert trainjob["spec"] == {"runtimeRef": {"kind": "TrainingRuntime", "name": "old"}, "trainer": {"numNodes": 2}}
    node = pods(built(migrated))["node"]
    assert env_of(node)["PET_NNODES"] == "2"
    assert env_of(node)["PET_MASTER_ADDR"] == "old-node-0-0.old"
    assert "job-completion-index" in env_of(node)["PET_NODE_RANK"]["fieldRef"]["fieldPath"]
    assert node["nodeSelector"] == {"gpu": "a100"}
    assert node["containers"][0]["name"] == "node"
    assert "was renamed to 'node'" in said(migrated, "containers")


def test_elastic_training_says_what_it_loses() -> None:
    old = job("PyTorchJob", "pytorchReplicaSpecs", Worker={"replicas": 2, "container": {"command": ["torchrun"]}})
    old["spec"]["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 4, "maxRestarts": 9, "nProcPerNode": 2}
    migrated = migrate(old)
    assert "PET_MAX_RESTARTS" in said(migrated, "maxRestarts")
    assert "do not scale" in said(migrated, "maxReplicas")
    assert migrated.objects[0]["spec"]["trainer"]["numProcPerNode"] == 2


@pytest.mark.parametrize(("given", "kept"), [("3", 3), ("auto", None), ("gpu", None)])
def test_processes_on_a_node(given: str, kept: int | None) -> None:
    old = job("PyTorchJob", "pytorchReplicaSpecs", Worker={"container": {"command": ["torchrun"]}})
    old["spec"]["nprocPerNode"] = given
    assert migrate(old).objects[0]["spec"]["trainer"].get("numProcPerNode") == kept


def test_tf_config_names_every_host_and_the_pods_own_place() -> None:
    migrated = migrate(job("TFJob", "tfReplicaSpecs", Chief=1, PS=2, Worker=3, Evaluator=1))
    made = pods(built(migrated))
    assert list(made) == ["chief", "ps", "worker", "evaluator"]
    for name, pod in made.items():
        env = env_of(pod)
        text = env["TF_CONFIG"].replace("$(REPLICA_INDEX)", "7").replace("$(JOBSET_NAME)", "j")
        config = json.loads(text)
        assert config["task"] == {"type": name, "index": 7}
        assert {kind: len(hosts) for kind, hosts in config["cluster"].items()} == {"chief": 1, "ps": 2, "worker": 3}
        assert config["cluster"]["worker"][2] == "j-worker-0-2.j:2222"
    assert built(migrated)["spec"]["successPolicy"]["targetReplicatedJobs"] == ["chief"]


def test_a_single_worker_is_not_distributed() -> None:
    made = pods(built(migrate(job("TFJob", "tfReplicaSpecs", Worker=1))))
    assert "TF_CONFIG" not in env_of(made["worker"])


@pytest.mark.parametrize("version", ["kubeflow.org/v1", "kubeflow.org/v2beta1"])
def test_an_mpi_job_starts_its_launcher_when_the_workers_are_ready(version: str) -> None:
    old = job("MPIJob", "mpiReplicaSpecs", version, Launcher={"container": {"command": ["mpirun", "t"]}}, Worker=2)
    old["spec"]["slotsPerWorker"] = 4
    migrated = migrate(old)
    jobset = built(migrated)
    assert [entry["name"] for entry in jobset["spec"]["replicatedJobs"]] == ["node", "launcher"]
    assert jobset["spec"]["replicatedJobs"][1]["dependsOn"] == [{"name": "node", "status": "Ready"}]
    assert pods(jobset)["node"]["containers"][0]["command"] == ["/usr/sbin/sshd", "-De"]
    assert env_of(pods(jobset)["launcher"])["OMPI_MCA_orte_set_default_slots"] == "4"


def test_paddle_and_xgboost_programs_find_their_peers() -> None:
    container = {"ports": [{"name": "master", "containerPort": 37777}]}
    made = pods(built(migrate(job("PaddleJob", "paddleReplicaSpecs", Worker={"replicas": 2, "container": container}))))
    assert env_of(made["node"])["PADDLE_MASTER"] == "$(POD_IP_DUMMY):37777"
    assert env_of(made["worker"])["PADDLE_MASTER"] == "$(JOBSET_NAME)-node-0-0.$(JOBSET_NAME):37777"
    assert env_of(made["worker"])["PADDLE_NNODES"] == "2"
    env = env_of(pods(built(migrate(job("XGBoostJob", "xgbReplicaSpecs", Master=1, Worker=2))))["node"])
    assert env["WORKER_ADDRS"].count("$(JOBSET_NAME)-node-0-") == 2
    assert (env["WORLD_SIZE"], env["MASTER_PORT"]) == ("3", "9999")


@pytest.mark.parametrize("policy", ["OnFailure", "Never"])  # on a bundled runtime, and with a runtime for the job
def test_a_jax_program_finds_its_coordinator_by_the_old_and_the_new_names(policy: str) -> None:
    migrated = migrate(job("JAXJob", "jaxReplicaSpecs", Worker={"replicas": 2, "restartPolicy": policy}))
    assert len(migrated.objects) == (1 if policy == "OnFailure" else 2)
    env = env_of(pods(built(migrated))["node"])
    assert env["JAX_NUM_PROCESSES"] == "2"
    assert env["COORDINATOR_ADDRESS"] == "$(JOBSET_NAME)-node-0-0.$(JOBSET_NAME)"
    assert {"NUM_PROCESSES", "PROCESS_ID", "JAX_COORDINATOR_ADDRESS", "JAX_PROCESS_ID"} <= set(env)


@pytest.mark.parametrize(
    ("policy", "restart", "backoff", "failures"),
    [
        ("Never", "Never", 0, False),
        ("OnFailure", "OnFailure", 3, False),
        ("Always", "OnFailure", 3, False),
        ("ExitCode", "Never", 3, True),
    ],
)
def test_restart_policies(policy: str, restart: str, backoff: int, failures: bool) -> None:
    old = job("TFJob", "tfReplicaSpecs", Worker={"restartPolicy": policy})
    old["spec"]["runPolicy"] = {"backoffLimit": 3}
    jobset = built(migrate(old))
    spec = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert (spec["template"]["spec"]["restartPolicy"], spec["backoffLimit"]) == (restart, backoff)
    assert ("podFailurePolicy" in spec) is failures


def test_the_run_policy_has_its_places() -> None:
    old = job("PyTorchJob", "pytorchReplicaSpecs", Worker={"container": {"command": ["torchrun"]}})
    old["spec"]["runPolicy"] = {
        "suspend": True,
        "activeDeadlineSeconds": 60,
        "ttlSecondsAfterFinished": 5,
        "cleanPodPolicy": "All",
        "schedulingPolicy": {"queue": "research", "priorityClass": "high", "minAvailable": 2, "scheduleTimeoutSeconds": 9},
    }
    migrated = migrate(old)
    runtime, trainjob = migrated.objects
    assert trainjob["spec"]["suspend"] is True
    assert trainjob["spec"]["activeDeadlineSeconds"] == 60
    assert trainjob["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "research"}
    assert runtime["spec"]["template"]["spec"]["ttlSecondsAfterFinished"] == 5
    assert runtime["spec"]["podGroupPolicy"] == {"coscheduling": {"scheduleTimeoutSeconds": 9}}
    assert pods(built(migrated))["node"]["priorityClassName"] == "high"
    assert "All is not kept" in said(migrated, "cleanPodPolicy")


@pytest.mark.parametrize(("labelled", "noted"), [("kueue", "'volcano' is lost"), ("volcano", "became the label")])
def test_queue_of_volcano_replaces_no_label(labelled: str, noted: str) -> None:
    old = job("PyTorchJob", "pytorchReplicaSpecs", Worker={"container": {"command": ["torchrun"]}})
    old["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": labelled}
    old["spec"]["runPolicy"] = {"schedulingPolicy": {"queue": "volcano"}}
    migrated = migrate(old)
    assert migrated.objects[-1]["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": labelled}
    assert noted in said(migrated, "schedulingPolicy.queue")


@pytest.mark.parametrize(("given", "kept"), [("kueue.x-k8s.io/multikueue", True), ("kubeflow.org/training-operator", False)])
def test_who_manages_the_job_is_kept_unless_it_was_the_old_operator(given: str, kept: bool) -> None:
    old = job("PyTorchJob", "pytorchReplicaSpecs", Worker={"container": {"command": ["torchrun"]}})
    old["spec"] |= {"runPolicy": {"managedBy": given}, "nprocPerNode": "1"}
    migrated = migrate(old)
    assert migrated.objects[0]["spec"].get("managedBy") == (given if kept else None)
    assert bool(migrated.notes) is not kept


POD = {"template": {"spec": {"containers": [{"name": "c", "image": "i:1"}]}}}
NO_IMAGE = {"template": {"spec": {"containers": [{"name": "c"}]}}}
TWO_NODES = {
    "template": {"spec": {"volumes": [], "containers": [{"name": "pytorch", "image": "i:1"}, {"name": "node", "image": "i:1"}]}}
}


@pytest.mark.parametrize(
    ("old", "field"),
    [
        ({"spec": {}}, "spec.pytorchReplicaSpecs"),
        ({"spec": {"pytorchReplicaSpecs": {}}}, "spec.pytorchReplicaSpecs"),
        ({"spec": {"pytorchReplicaSpecs": {"Boss": POD}}}, "spec.pytorchReplicaSpecs.Boss"),
        ({"spec": {"pytorchReplicaSpecs": {"Worker": {"template": {}}}}}, "spec.pytorchReplicaSpecs.Worker.template.spec"),
        ({"spec": {"pytorchReplicaSpecs": {"Worker": POD | {"replicas": "2"}}}}, "spec.pytorchReplicaSpecs.Worker.replicas"),
        ({"metadata": {}, "spec": {"pytorchReplicaSpecs": {"Worker": POD}}}, "metadata.name"),
        ({"spec": {"pytorchReplicaSpecs": {"Worker": POD, "worker": POD}}}, "spec.pytorchReplicaSpecs.worker"),
        ({"spec": {"pytorchReplicaSpecs": {"master": POD | {"replicas": 2}}}}, "spec.pytorchReplicaSpecs.master.replicas"),
        ({"spec": {"pytorchReplicaSpecs": {"Worker": POD | {"replicas": 0}}}}, "spec.pytorchReplicaSpecs"),
        (
            {"spec": {"pytorchReplicaSpecs": {"Worker": NO_IMAGE}}},
            "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].image",
        ),
        ({"spec": {"pytorchReplicaSpecs": {"Worker": TWO_NODES}}}, "spec.pytorchReplicaSpecs.Worker.template.spec.containers"),
    ],
)
def test_invalid_jobs_are_refused_by_field(old: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as raised:
        migrate({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "x"}, **old})
    assert field in {problem.field for problem in raised.value.problems}


def test_fields_that_a_server_dropped_from_a_pod_template_are_dropped_with_their_old_path() -> None:
    old = job("PyTorchJob", "pytorchReplicaSpecs", Worker={"pod": {"nodeselector": {"gpu": "a100"}}})
    old["spec"]["pytorchReplicaSpecs"]["Worker"]["template"] |= {"apiVersion": "v1", "kind": "Pod"}
    migrated = migrate(old)
    assert "server dropped" in said(migrated, "Worker.template.apiVersion")
    assert "server dropped" in said(migrated, "Worker.template.spec.nodeselector")
    assert "nodeselector" not in pods(built(migrated))["node"]


@pytest.mark.parametrize(
    ("container", "is_stock"),
    [
        ({"image": "i:1", "imagePullPolicy": "IfNotPresent"}, True),
        ({"image": "i", "imagePullPolicy": "Always"}, True),
        ({"image": "host:5000/i:1", "imagePullPolicy": "Always"}, False),  # the tag is pushed again and again
        ({"image": "host:5000/i", "imagePullPolicy": "Never"}, False),
        ({"envFrom": [{"secretRef": {"name": "keys"}}]}, False),
    ],
)
def test_a_bundled_runtime_is_used_only_if_it_says_the_same(container: dict[str, Any], is_stock: bool) -> None:
    migrated = migrate(job("PyTorchJob", "pytorchReplicaSpecs", Worker={"container": container}))
    (made,) = pods(built(migrated))["node"]["containers"]
    assert (len(migrated.objects) == 1) is is_stock
    assert is_stock or {key: made[key] for key in container} == container


def test_processes_that_trainer_counts_otherwise_are_noted() -> None:
    container = {"command": ["torchrun", "t.py"], "resources": {"limits": {"cpu": 8, "nvidia.com/mig-1g.5gb": 1}}}
    migrated = migrate(job("PyTorchJob", "pytorchReplicaSpecs", Worker={"container": container}))
    assert env_of(pods(built(migrated))["node"])["PET_NPROC_PER_NODE"] == "8"
    assert "set spec.trainer.numProcPerNode" in said(migrated, "nprocPerNode")


def test_a_torchtune_command_is_not_completed_by_trainer() -> None:
    container = {"command": ["tune", "run"], "args": ["full_finetune_single_device", "--config", "own.yaml"]}
    migrated = migrate(job("PyTorchJob", "pytorchReplicaSpecs", Worker={"container": container}))
    (made,) = pods(built(migrated))["node"]["containers"]
    assert made["command"] + made["args"] == container["command"] + container["args"]


@pytest.mark.parametrize(("implementation", "variable"), [("Intel", "I_MPI_HYDRA_HOST_FILE"), ("MPICH", "HYDRA_HOST_FILE")])
def test_other_implementations_of_mpi_read_the_hostfile_rather_than_run_on_the_launcher_alone(
    implementation: str, variable: str
) -> None:
    old = job("MPIJob", "mpiReplicaSpecs", "kubeflow.org/v2beta1", Launcher=1, Worker=2)
    old["spec"]["mpiImplementation"] = implementation
    migrated = migrate(old)
    assert env_of(pods(built(migrated))["launcher"])[variable] == "/etc/mpi/hostfile"
    assert "only OpenMPI" in said(migrated, "mpiImplementation")


def test_workers_without_a_number_are_none_which_the_mpi_operator_refuses() -> None:
    worker = {"template": {"spec": {"containers": [{"name": "mpi", "image": "i:1"}]}}}
    old = job("MPIJob", "mpiReplicaSpecs", "kubeflow.org/v2beta1", Launcher=1)
    old["spec"]["mpiReplicaSpecs"]["Worker"] = worker
    with pytest.raises(Invalid) as raised:
        migrate(old)
    assert [problem.field for problem in raised.value.problems] == ["spec.mpiReplicaSpecs.Worker.replicas"]


def test_another_kind_is_refused() -> None:
    with pytest.raises(BadRequest, match=r"Deployment \(apps/v1\) cannot be migrated; supported are JAXJob"):
        migrate({"apiVersion": "apps/v1", "kind": "Deployment"})


def test_other_objects_pass_beside_a_job_with_notes_on_what_they_refer_to() -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "board"},
        "spec": {"selector": {"training.kubeflow.org/job-name": "old"}},
    }
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "hosts"},
        "data": {"hosts": "old-worker-0,old-worker-1"},
    }
    experiment = {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Experiment",
        "metadata": {"name": "search"},
        "spec": {"trialTemplate": {"trialSpec": {"kind": "PyTorchJob"}}},
    }
    old = job("PyTorchJob", "pytorchReplicaSpecs", Worker=2)
    results = migrate_all([service, old, config, experiment])
    assert [result.objects[-1]["kind"] for result in results] == ["Service", "TrainJob", "ConfigMap", "Experiment"]
    assert [result.objects for result in results if result.objects[0]["kind"] != "TrainJob"] == [
        [service],
        [config],
        [experiment],
    ]
    texts = ["; ".join(note.text for note in result.notes) for result in results]
    assert "Service board is passed through unchanged" in texts[0]
    assert "labels training.kubeflow.org/*" in texts[0]
    assert "mentions old-worker-0" in texts[2]
    assert "contains a PyTorchJob, which is not migrated" in texts[3]
    for unknown in (
        {"apiVersion": "kubeflow.org/v1", "kind": "MXJob"},
        {"apiVersion": "kubeflow.org/v1beta1", "kind": "PyTorchJob"},
    ):
        with pytest.raises(BadRequest, match="cannot be migrated"):  # it would not be trained
            migrate_all([old, unknown])
    with pytest.raises(BadRequest, match=r"Service \(v1\) cannot be migrated"):
        migrate_all([service])


def test_the_first_trainjobs_become_todays() -> None:
    early = {
        "apiVersion": "kubeflow.org/v2alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "early"},
        "spec": {
            "runtimeRef": {"name": "torch-distributed", "apiGroup": "kubeflow.org"},
            "numNodes": 2,
            "datasetConfig": {"storageUri": "tatsu-lab/alpaca"},
            "modelConfig": {"input": {"storageUri": "hf://a/b"}, "output": {"storageUri": "s3://out"}},
            "trainer": {"image": "example.com/i:1", "numProcPerNode": "auto"},
            "labels": {"team": "x"},
            "podSpecOverrides": [{"targetJobs": [{"name": "node"}], "nodeSelector": {"gpu": "a"}}],
        },
    }
    migrated = migrate(early)
    spec = admit(migrated.objects[0]).object["spec"]
    assert spec["initializer"] == {"dataset": {"storageUri": "hf://tatsu-lab/alpaca"}, "model": {"storageUri": "hf://a/b"}}
    assert spec["trainer"] == {"image": "example.com/i:1", "numNodes": 2}
    del migrated.objects[0]["spec"]["initializer"]  # torch-distributed has no step for it
    jobset = built(migrated)
    assert pods(jobset)["node"]["nodeSelector"] == {"gpu": "a"}
    assert jobset["metadata"]["labels"]["team"] == "x"
    assert "hf:// was added" in said(migrated, "dataset.storageUri")
    assert "export the checkpoint" in said(migrated, "modelConfig.output")


def test_pod_template_overrides_become_runtime_patches_and_the_later_wins() -> None:
    override = {"targetJobs": [{"name": "node"}], "spec": {"serviceAccountName": "a", "nodeSelector": {"x": "1"}}}
    later = {"targetJobs": [{"name": "node"}], "metadata": {"labels": {"l": "v"}}, "spec": {"serviceAccountName": "b"}}
    early = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "early"},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "podTemplateOverrides": [override, later, {"spec": {}}]},
    }
    migrated = migrate(early)
    node = pods(built(migrated))["node"]
    assert (node["serviceAccountName"], node["nodeSelector"]) == ("b", {"x": "1"})
    assert "applied to no job" in said(migrated, "targetJobs")


@pytest.mark.parametrize("processes", ["auto", "gpu", 4])
def test_a_runtimes_process_count_is_taken_out(processes: Any) -> None:
    runtime = bundled_runtime("torch-distributed")
    assert runtime is not None
    runtime["spec"]["mlPolicy"]["torch"] = {"numProcPerNode": processes, "elasticPolicy": {"maxNodes": 2}}
    migrated = migrate(runtime)
    assert admit(migrated.objects[0]).object["spec"]["mlPolicy"]["torch"] == {}
    assert said(migrated, "numProcPerNode")


def test_todays_form_stays_as_it_is() -> None:
    today = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "x"},
        "spec": {"runtimeRef": {"name": "y"}},
    }
    assert migrate(today) == MigrationResult([today], [])


FIELDS = {
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "MPIJob": "mpiReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "spec", "template", "containers", "Worker", "Launcher", "replicas"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@pytest.mark.medium
@given(
    kind=st.sampled_from(sorted(FIELDS)),
    replicas=JSON,
    more=st.dictionaries(st.sampled_from(["runPolicy", "elasticPolicy", "nprocPerNode", "slotsPerWorker"]), JSON, max_size=3),
)
def test_property_whatever_is_given_only_the_typed_errors_come_out(kind: str, replicas: Any, more: dict[str, Any]) -> None:
    old = {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": {"name": "x"}, "spec": {FIELDS[kind]: replicas, **more}}
    try:
        migrate(old)
    except (Invalid, BadRequest):
        return


def test_every_kind_is_known() -> None:
    assert {kind for _, kind in KINDS} == set(FIELDS)
