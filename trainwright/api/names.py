"""Label keys, annotation keys, suffixes and other well-known names, and our own."""

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
INITIALIZERS = (ANCESTOR_DATASET, ANCESTOR_MODEL)
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

# trainwright.dev
OWNER_ANNOTATION = "trainwright.dev/owner"
ATTEMPT_ANNOTATION = "trainwright.dev/attempt"
"""The attempt of its step, from 1."""
SPEC_DIGEST_ANNOTATION = "trainwright.dev/spec-digest"
SUPERSEDED_ANNOTATION = "trainwright.dev/superseded"
SUSPENDED_BY_ANNOTATION = "trainwright.dev/suspended-by"
STOPPED_EARLY_ANNOTATION = "trainwright.dev/stopped-early"
"""On a suspended TrainJob of a sweep: why it is hopeless. Submitting its step again does not resume it."""
WAITER_LEASE_ANNOTATION = "trainwright.dev/waiter-lease-seconds"
"""Seconds without a renewal after which the client that waits for the job counts as gone."""
WAITER_RENEWED_ANNOTATION = "trainwright.dev/waiter-renewed"
WAITER_LOST_ANNOTATION = "trainwright.dev/waiter-lost"
"""On a TrainJob that is suspended because its waiting client is gone."""
WORKFLOW_LABEL = "trainwright.dev/workflow"
"""The workflow of a pipeline whose step has submitted the job."""
TRAINJOB_ANNOTATION = "trainwright.dev/trainjob"
"""On a JobSet that was created in place of a TrainJob: that TrainJob, as JSON."""
SOURCE_KIND_LABEL = "trainwright.dev/source-kind"
"""On the same JobSets: `TrainJob`, for label selectors."""
COMPANIONS_CREATED_ANNOTATION = "trainwright.dev/companions-created-generation"
"""On the same JobSets: their metadata.generation once all companions were created, where that is not the first."""
SINGLE_NODE_ANNOTATION = "trainwright.dev/single-node"
"""On the only Node of a cluster: a pod that does not fit on it never will."""
FITS_CLUSTER = "FitsCluster"
"""Condition of a TrainJob: False if it can never fit on a single-node cluster."""
QUOTA_RESERVED = "QuotaReserved"
"""Condition of a TrainJob in a queue of an embedded cluster. Kueue has it on the Workload."""
RUN_FOLDER_ANNOTATION = "trainwright.dev/run-folder"
"""The workspace folder that the job writes to, as a URI; it has one holder at a time."""
DATASET_DIGEST_ANNOTATION = "trainwright.dev/dataset-digest"
MODEL_DIGEST_ANNOTATION = "trainwright.dev/model-digest"
CODE_ANNOTATION = "trainwright.dev/code"
"""The source of a job's code, and its digest."""
RUN_INSTANCE_ANNOTATION = "trainwright.dev/run-instance"
"""On a TrainJob: which of the runs with the same id has submitted it."""
CLEARS_ANNOTATION = "trainwright.dev/max-tries"
"""On a TrainJob of Airflow: the most tries of its task when it was submitted. Only a clear changes that."""
TASK_INSTANCE_ANNOTATION = "trainwright.dev/task-instance"
"""On a TrainJob of Airflow: the id of the task instance that has submitted it."""
WAITER_ANNOTATION = "trainwright.dev/waiter"
"""On a TrainJob of Airflow: the process that has submitted or adopted it last, as a random text."""
AWAITED_BY_ANNOTATION = "trainwright.dev/awaited-by"
"""On a TrainJob of Airflow: the task that waits for it, and what to do with the job if a user ends the task. JSON."""
LOG_SHOWN_ANNOTATION = "trainwright.dev/log-shown"
"""On a TrainJob: how far the logs of its pods have been shown in the log of a deferred task. JSON."""
RUN_LABEL = "trainwright.dev/run"
STEP_LABEL = "trainwright.dev/step"
DAG_LABEL, AIRFLOW_RUN_LABEL = "trainwright.dev/dag_id", "trainwright.dev/run_id"
TASK_LABEL, MAP_INDEX_LABEL = "trainwright.dev/task_id", "trainwright.dev/map_index"
TRY_NUMBER_LABEL = "trainwright.dev/try_number"
"""Of Airflow; the try is the one that has submitted the job."""
PIPELINE_LABEL, PIPELINE_RUN_LABEL = "trainwright.dev/pipeline", "trainwright.dev/pipeline_run"
PIPELINE_TASK_LABEL = "trainwright.dev/pipeline_task"
"""Of Kubeflow Pipelines."""
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
HOST_PATH_ANNOTATION = "trainwright.dev/host-path"
"""On a PersistentVolumeClaim of an embedded cluster: the folder to use, instead of one in its home."""
PREEMPTED_ANNOTATION = "trainwright.dev/preempted"
"""On a TrainJob that failed because its pods were preempted."""
PREEMPTIONS_ANNOTATION = "trainwright.dev/preemptions-before"
"""On a TrainJob: the number of earlier attempts of its step that were preempted."""
RETRIED_ANNOTATION = "trainwright.dev/retried"
"""On a TrainJob that failed and was submitted again by its waiting client."""
RETRIES_ANNOTATION = "trainwright.dev/retries-before"
"""On a TrainJob: the number of earlier attempts of its step that were submitted again so."""
RESUMES_FROM_ANNOTATION = "trainwright.dev/resumes-from"
"""On a TrainJob that continues earlier attempts: the UIDs of their JobSets, the latest first."""
LEGACY = {
    ATTEMPT_ANNOTATION: "trainwright.dev/generation",
    SOURCE_KIND_LABEL: "trainwright.dev/stands-for",
    COMPANIONS_CREATED_ANNOTATION: "trainwright.dev/built",
    SINGLE_NODE_ANNOTATION: "trainwright.dev/whole-cluster",
    RESUMES_FROM_ANNOTATION: "trainwright.dev/continues",
}
"""The names that 0.1 stored; 0.2 still reads them."""
RESUME_POINT = "resume-point"
"""The init container of a runtime that selects the checkpoint to resume from; it reads the variables below."""
RESUME_VARIABLE = "TRAINWRIGHT_RESUME"
"""`never`, the URI of an exported checkpoint, or `weights:` and such a URI; unset is `auto`."""
RESUME_WEIGHTS = "weights:"
"""Prefix of a URI in `resume`: a new training starts from the weights of that export."""
RESUME_EXPORT_VARIABLE = "TRAINWRIGHT_RESUME_EXPORT"
"""The run's export, from which `auto` and `weights:URI` resume if the volume has no checkpoint."""
RESUME_JOB_VARIABLE = "TRAINWRIGHT_RESUME_JOB"
"""The identity of a job: the UID of its JobSet."""
RESUMES_FROM_VARIABLE = "TRAINWRIGHT_RESUME_CONTINUES"
"""Comma-separated UIDs of preempted attempts, whose checkpoints count as the job's own."""


def progress_audience(namespace: str, name: str) -> str:
    """Audience of the token with which a TrainJob's pods report progress; also the path of the report below `/apis/`."""
    return f"trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs/{name}/status"


def suspended_by_us(generation: int) -> str:
    """The mark of a suspension by us, with the resulting metadata.generation: invalid once the spec changes again."""
    return f"trainwright@{generation}"


# Variables of pods in a workspace that runs share
DATASET_DIGEST_VARIABLE = "TRAINWRIGHT_DATASET_DIGEST"
"""The required digest of the prepared dataset."""
MODEL_DIGEST_VARIABLE = "TRAINWRIGHT_MODEL_DIGEST"
"""The required digest of the prepared model."""
SHARED_VARIABLE = "TRAINWRIGHT_SHARED"
"""The mount path of the whole workspace, in steps that prepare a dataset or a model."""
RUN_FOLDER_VARIABLE = "TRAINWRIGHT_RUN_FOLDER"
"""The run's folder in the workspace, `runs/NAME`."""
CLAIMS_VARIABLE = "TRAINWRIGHT_CLAIMS"
"""Where claims of sources are mounted: `CLAIM=/path,...`."""
CLAIMS_FOLDER = "/mnt/claims"
"""A claim is mounted in the folder of its name below this one, unless CLAIMS_VARIABLE names another."""
UMASK_VARIABLE = "TRAINWRIGHT_UMASK"
"""The umask of our programs, in octal: pods of different users share a workspace."""
SERVICE_ACCOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where a pod finds the token of its service account, and what belongs to it."""
