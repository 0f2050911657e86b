"""Label keys, annotation keys, suffixes and other names that the field agreed on."""

from __future__ import annotations

# trainer.kubeflow.org
ANCESTOR_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"
FRAMEWORK_LABEL = "trainer.kubeflow.org/framework"
SUPPORT_LABEL = "trainer.kubeflow.org/support"
TRAINJOB_CONTROLLER = "trainer.kubeflow.org/trainjob-controller"
MULTIKUEUE_CONTROLLER = "kueue.x-k8s.io/multikueue"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
ANCESTOR_DATASET = "dataset-initializer"
ANCESTOR_MODEL = "model-initializer"
ANCESTOR_TRAINER = "trainer"
NODE = "node"
"""The container (and, by convention, the replicated job) that runs the training program."""
RUNTIME_IN_USE = "trainer.kubeflow.org/resource-in-use"
"""The finalizer that Trainer up to 2.2 put on runtimes."""
CONTAINER_OF_ANCESTOR = {
    ANCESTOR_DATASET: "dataset-initializer",
    ANCESTOR_MODEL: "model-initializer",
    ANCESTOR_TRAINER: NODE,
}
INITIALIZER_VOLUME = "initializer"
RENDEZVOUS_PORT = 29500
"""Trainer's fixed port of the torch master, the JAX coordinator and the XGBoost tracker."""
SNAPSHOT_SUFFIX = "-runtime-snapshot"
TLS_CONFIG_SUFFIX = "-tls-config"
TOKEN_VOLUME = "kubeflow-trainer-token"
TOKEN_MOUNT = "/var/run/secrets/kubeflow/trainer"

# batch.kubernetes.io
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
JOB_NAME_LABEL = "batch.kubernetes.io/job-name"
CONTROLLER_UID_LABEL = "batch.kubernetes.io/controller-uid"
JOB_TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"

# jobset.sigs.k8s.io
JOBSET_NAME_LABEL = "jobset.sigs.k8s.io/jobset-name"
JOBSET_UID_LABEL = "jobset.sigs.k8s.io/jobset-uid"
REPLICATED_JOB_LABEL = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_INDEX_LABEL = "jobset.sigs.k8s.io/job-index"
RESTART_ATTEMPT_LABEL = "jobset.sigs.k8s.io/restart-attempt"
JOBSET_CONTROLLER = "jobset.sigs.k8s.io/jobset-controller"

CLAIM_PROTECTION = "kubernetes.io/pvc-protection"
"""The finalizer that keeps a claim while a pod uses it."""

# ours
OWNER_ANNOTATION = "trainwright.dev/owner"
ATTEMPT_ANNOTATION = "trainwright.dev/attempt"
"""Which try of its step a TrainJob is, counted from 1."""
SPEC_DIGEST_ANNOTATION = "trainwright.dev/spec-digest"
SUPERSEDED_ANNOTATION = "trainwright.dev/superseded"
SUSPENDED_BY_ANNOTATION = "trainwright.dev/suspended-by"
TRAINJOB_ANNOTATION = "trainwright.dev/trainjob"
"""On a JobSet that was made without a TrainJob: the TrainJob that it stands for, as JSON."""
SOURCE_KIND_LABEL = "trainwright.dev/source-kind"
"""On the same JobSets, `TrainJob`: what a label selector finds them by."""
COMPANIONS_CREATED_ANNOTATION = "trainwright.dev/companions-created-generation"
"""On the same JobSets: their metadata.generation once all companions were created, where that is not the first."""
SINGLE_NODE_ANNOTATION = "trainwright.dev/single-node"
"""On the only Node of a cluster: a pod that does not fit on it never will."""
FITS_CLUSTER = "FitsCluster"
"""Condition of a TrainJob: False where a cluster of one machine can never hold it."""
QUOTA_RESERVED = "QuotaReserved"
"""Condition of a TrainJob: what its queue on an embedded cluster says. Kueue says it of its Workload."""
RUN_FOLDER_ANNOTATION = "trainwright.dev/run-folder"
"""The folder of the workspace that the job writes to, as a URI: one holder at a time."""
DATASET_DIGEST_ANNOTATION = "trainwright.dev/dataset-digest"
MODEL_DIGEST_ANNOTATION = "trainwright.dev/model-digest"
CODE_ANNOTATION = "trainwright.dev/code"
"""Where the code of a job came from, and its digest."""
RUN_LABEL = "trainwright.dev/run"
STEP_LABEL = "trainwright.dev/step"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
HOST_PATH_ANNOTATION = "trainwright.dev/host-path"
"""On a PersistentVolumeClaim of an embedded cluster: the folder that the claim is, instead of one below its home."""
PREEMPTED_ANNOTATION = "trainwright.dev/preempted"
"""On a TrainJob that has ended because its pods were taken away."""
PREEMPTIONS_ANNOTATION = "trainwright.dev/preemptions-before"
"""On a TrainJob: how many earlier generations of its step ended that way."""
RESUMES_FROM_ANNOTATION = "trainwright.dev/resumes-from"
"""On a TrainJob that follows preempted ones: the UIDs of their JobSets, the latest first."""
LEGACY = {
    ATTEMPT_ANNOTATION: "trainwright.dev/generation",
    SOURCE_KIND_LABEL: "trainwright.dev/stands-for",
    COMPANIONS_CREATED_ANNOTATION: "trainwright.dev/built",
    SINGLE_NODE_ANNOTATION: "trainwright.dev/whole-cluster",
    RESUMES_FROM_ANNOTATION: "trainwright.dev/continues",
}
"""The names under which 0.1 stored the same; they are still read in 0.2."""
RESUME_POINT = "resume-point"
"""The init container of a runtime that decides where training goes on; it reads the variables below."""
RESUME_VARIABLE = "TRAINWRIGHT_RESUME"
"""`never`, or the URI of an exported checkpoint; unset is `auto`."""
RESUME_EXPORT_VARIABLE = "TRAINWRIGHT_RESUME_EXPORT"
"""The export that `auto` goes on from where the volume has no checkpoint."""
RESUME_JOB_VARIABLE = "TRAINWRIGHT_RESUME_JOB"
"""What tells a job from every other: the UID of its JobSet."""
RESUMES_FROM_VARIABLE = "TRAINWRIGHT_RESUME_CONTINUES"
"""The jobs, with commas between, whose checkpoints are as good as its own: those that it follows after a preemption."""


def progress_audience(namespace: str, name: str) -> str:
    """Audience of the token with which a TrainJob's pods report progress; also the path of the report below `/apis/`."""
    return f"trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs/{name}/status"


def suspended_by_us(generation: int) -> str:
    """The mark of our own suspension, with the generation that it made: once the spec changes again it holds no more."""
    return f"trainwright@{generation}"


# Variables of pods whose workspace is shared by many runs
DATASET_DIGEST_VARIABLE = "TRAINWRIGHT_DATASET_DIGEST"
"""The digest of the prepared dataset that a job must train on."""
MODEL_DIGEST_VARIABLE = "TRAINWRIGHT_MODEL_DIGEST"
"""The digest of the prepared model that a job must start from."""
SHARED_VARIABLE = "TRAINWRIGHT_SHARED"
"""Where the whole workspace folder is mounted, in the steps that prepare a dataset or a model."""
RUN_FOLDER_VARIABLE = "TRAINWRIGHT_RUN_FOLDER"
"""The run's folder in the workspace, `runs/NAME`."""
UMASK_VARIABLE = "TRAINWRIGHT_UMASK"
"""The umask of our programs, in octal: pods of different users share a workspace."""
