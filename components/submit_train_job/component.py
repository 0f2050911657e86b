"""Submit or adopt a TrainJob, and return its handle."""

from kfp import dsl

from trainwright.components.step import step


@step(submits=True)
def submit_train_job(
    run_id: str,
    # Written by `make edges` from TrainRequest.
    runtime: str = "",
    runtime_kind: str = "ClusterTrainingRuntime",
    builtin: str = "",
    settings: dict = {},
    image: str = "",
    command: list = [],
    args: list = [],
    env: dict = {},
    func: str = "",
    func_args: dict = {},
    packages_to_install: list = [],
    pip_index_urls: list = [],
    code: str = "",
    manifest: str = "",
    num_nodes: int = 0,
    num_proc_per_node: int = 0,
    resources_per_node: dict = {},
    labels: dict = {},
    annotations: dict = {},
    runtime_patches: list = [],
    dataset_uri: str = "",
    metadata_loc: str = "",
    num_data_nodes: int = 0,
    worker_mem: str = "",
    dataset_digest: str = "",
    dataset_env: dict = {},
    model_uri: str = "",
    model_digest: str = "",
    model_env: dict = {},
    model_shape: dict = {},
    workspace: str = "",
    queue_name: str = "",
    priority_class: str = "",
    topology: str = "",
    node_selector: dict = {},
    tolerations: list = [],
    affinity: dict = {},
    memory_check: str = "warn",
    volumes: list = [],
    volume_mounts: list = [],
    run_timeout_seconds: int = -1,
    resume: str = "auto",
    export_uri: str = "",
    previous_jobs: str = "keep",
    restarts: int = 0,
    on_changed_request: str = "adopt",
    adopt_finished: bool = False,
    on_cancel: str = "suspend",
    waiter_lease_seconds: int = 600,
    store_secret: str = "",
    hub_secret: str = "",
    dataset_secret: str = "",
    model_secret: str = "",
    resume_secret: str = "",
    # End of what `make edges` writes.
    namespace: str = "",
    submission_mode: str = "",
    tie_to_run: bool = True,
    task_settings: dict = {},
    task_config: dsl.TaskConfig = None,
) -> str:
    """Submit or adopt the TrainJob of a training step, without waiting for it: `wait_train_job` does, and can be small.

    The parameters are those of `train`, without those of waiting. After a failure, running this step again submits the next
    attempt. The lease of the waiting step begins with the submission.

    Args:
        run_id: Id of the run: it gives the job the same name in every try, and prevents cached results.
            dsl.PIPELINE_JOB_ID_PLACEHOLDER gives each run its own id.
        runtime: Training runtime. Defaults to the builtin trainer's runtime, torch-distributed for a function or code, else trl-sft.
        runtime_kind: ClusterTrainingRuntime, or TrainingRuntime in the job's namespace.
        builtin: Builtin trainer: sft, dpo, kto or torchtune. Defaults to that of the runtime, such as sft, if no other program is
            set.
        settings: Settings of the builtin trainer, see docs/settings.md.
        image: Image of the job's main container.
        command: Command of that container; with code, it runs in the code's folder.
        args: Arguments of the command.
        env: Environment variables: strings, or {"valueFrom": {"secretKeyRef": {"name": ..., "key": ...}}}. Literal credentials are
            rejected.
        func: Training function. Its source is sent, as in the Kubeflow SDK; nothing is pickled.
        func_args: Keyword arguments of the function, as JSON.
        packages_to_install: Python packages for a function or code, installed on every node.
        pip_index_urls: Package indexes for these packages: the first replaces PyPI, the others are additional.
        code: Folder, or git+https://HOST/PATH@REVISION[#subdirectory=FOLDER], that is packed and unpacked on every node.
        manifest: Complete TrainJob, as an object, YAML text, or the path of a YAML file.
        num_nodes: Number of training nodes. Empty or 0: the runtime's.
        num_proc_per_node: Number of processes per node. Empty or 0: one per GPU, else one per CPU.
        resources_per_node: Resources per node: {"nvidia.com/gpu": "1"} for both limits and requests, or {"limits": ..., "requests":
            ...}.
        labels: Labels of the TrainJob.
        annotations: Annotations of the TrainJob.
        runtime_patches: Additional spec.runtimePatches, each with manager and trainingRuntimeSpec.
        dataset_uri: Dataset: hf://, s3://, gs://, az://, https://, pvc:// or file:///path; see docs/sources.md. cache://SCHEMA/TABLE
            reads a table from a data cache; see docs/data-cache.md.
        metadata_loc: Where a cached table is: metadata.json of an Iceberg table, or a file or folder of Parquet or CSV.
        num_data_nodes: Number of pods that have a cached table in memory. Empty or 0: 2.
        worker_mem: Memory of each of these pods. Empty: 2Gi.
        dataset_digest: Digest of the prepared dataset; nodes reject any other.
        dataset_env: Environment variables of the dataset initializer.
        model_uri: Base model: hf://, s3://, gs://, az://, pvc:// or file:///path; see docs/sources.md.
        model_digest: Digest of the prepared model; nodes reject any other.
        model_env: Environment variables of the model initializer.
        model_shape: Sizes of the model, as the step that prepares it returns them, for the estimate of memory_check.
        workspace: Volume that the steps of a run share: pvc://CLAIM[/FOLDER], or with ?size=20Gi[&class=&access=&retain=] to create
            it. The run's folder on it is mounted at /workspace.
        queue_name: Kueue LocalQueue: the job starts when the queue admits it.
        priority_class: Kueue WorkloadPriorityClass; requires queue_name.
        topology: required:KEY, preferred:KEY, unconstrained (Kueue) or exclusive:KEY (JobSet), where KEY is a node label.
        node_selector: Node selector of the training pods; does not apply to initializers.
        tolerations: Tolerations of the training pods, in addition to the runtime's.
        affinity: Node and pod affinity of the training pods.
        memory_check: Compare an estimate of the memory that sft, dpo or kto needs with that of the nodes before submission: warn,
            fail or off.
        volumes: Volumes of the training pods, besides the runtime's and the workspace.
        volume_mounts: Where the training containers mount volumes: those of `volumes`, or of the runtime by name.
        run_timeout_seconds: Maximum seconds of training; also set as activeDeadlineSeconds, which the cluster enforces. Empty or -1:
            that of the manifest, else a week. 0: no limit.
        resume: Where a new job starts: auto (the run's last checkpoint, if the request has not changed), last (also if it has),
            never, the URI of an exported checkpoint, or weights:URI (the run's last checkpoint, else the weights of that export at
            step 0).
        export_uri: Where the run exports checkpoints; resume=auto starts from there if the workspace has no checkpoint.
        previous_jobs: Whether to keep or delete finished jobs of this step when the next one is submitted.
        restarts: Restarts of a failed pod within one TrainJob. Empty or 0: none for a function or code, else as the runtime says.
        on_changed_request: What a retry whose settings have changed does with a job that still runs: adopt it, with a warning, or
            replace it.
        adopt_finished: Whether a job that has succeeded is taken as the result of another run of the orchestrator with the same id.
        on_cancel: What to do with the job when its step is cancelled, exceeds a deadline or stops waiting: suspend, delete or keep
            it.
        waiter_lease_seconds: Seconds after which a job whose waiting step is gone may be suspended, by a controller of Trainwright
            or a later step of its run; at least 30. 0: never.
        store_secret: Secret with object store credentials (AWS_ACCESS_KEY_ID ...), for datasets, models and exports to resume from.
        hub_secret: Secret with the key HF_TOKEN, for datasets, models and the training program.
        dataset_secret: Secret whose keys become environment variables of the dataset initializer.
        model_secret: Secret whose keys become environment variables of the model initializer.
        resume_secret: Secret with credentials for reading exports to resume from. Defaults to store_secret.
        namespace: Namespace of the TrainJob. Empty: the manifest's, else that of the credentials.
        submission_mode: auto, trainjob or jobset. Empty: TRAINWRIGHT_SUBMISSION_MODE, else auto, which depends on the cluster.
        tie_to_run: Whether the TrainJob is deleted together with the workflow of its pipeline run, and labelled with it.
        task_settings: Set when a pipeline is compiled: what is set on the task and Kubeflow Pipelines does not pass on.
        task_config: Set by Kubeflow Pipelines: what is set on the task is for the TrainJob, and not for the pod that waits for it.

    Returns:
        Handle of the job, for wait_train_job.
    """
    from trainwright.steps.step_end import explained_end, write_line
    from trainwright.steps.submit import train_step_of

    parameters = {
        # Written by `make edges` from TrainRequest.
        "runtime": runtime,
        "runtime_kind": runtime_kind,
        "builtin": builtin,
        "settings": settings,
        "image": image,
        "command": command,
        "args": args,
        "env": env,
        "func": func,
        "func_args": func_args,
        "packages_to_install": packages_to_install,
        "pip_index_urls": pip_index_urls,
        "code": code,
        "manifest": manifest,
        "num_nodes": num_nodes,
        "num_proc_per_node": num_proc_per_node,
        "resources_per_node": resources_per_node,
        "labels": labels,
        "annotations": annotations,
        "runtime_patches": runtime_patches,
        "dataset_uri": dataset_uri,
        "metadata_loc": metadata_loc,
        "num_data_nodes": num_data_nodes,
        "worker_mem": worker_mem,
        "dataset_digest": dataset_digest,
        "dataset_env": dataset_env,
        "model_uri": model_uri,
        "model_digest": model_digest,
        "model_env": model_env,
        "model_shape": model_shape,
        "workspace": workspace,
        "queue_name": queue_name,
        "priority_class": priority_class,
        "topology": topology,
        "node_selector": node_selector,
        "tolerations": tolerations,
        "affinity": affinity,
        "memory_check": memory_check,
        "volumes": volumes,
        "volume_mounts": volume_mounts,
        "run_timeout_seconds": run_timeout_seconds,
        "resume": resume,
        "export_uri": export_uri,
        "previous_jobs": previous_jobs,
        "restarts": restarts,
        "on_changed_request": on_changed_request,
        "adopt_finished": adopt_finished,
        "on_cancel": on_cancel,
        "waiter_lease_seconds": waiter_lease_seconds,
        "store_secret": store_secret,
        "hub_secret": hub_secret,
        "dataset_secret": dataset_secret,
        "model_secret": model_secret,
        "resume_secret": resume_secret,
        # End of what `make edges` writes.
    }
    with explained_end():
        handle = train_step_of(
            run_id,
            parameters,
            namespace=namespace,
            submission_mode=submission_mode,
            tie_to_run=tie_to_run,
            task_config=task_config,
            task_settings=task_settings,
        ).submit()
        write_line(f"TrainJob {handle.namespace}/{handle.name}")
    return handle.model_dump_json()
