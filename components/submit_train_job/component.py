"""Submit or adopt a TrainJob, and return its handle."""

from kfp import dsl

from trainwright.components.step import step
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.steps.training.kfp_parameters import RUN


@step(settings=TrainRequest, needs=RUN, submits=True)
def submit_train_job(
    # Written by `make edges` from TrainRequest.
    runtime: str = "",
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
    dataset_uri: str = "",
    dataset_digest: str = "",
    model_uri: str = "",
    model_digest: str = "",
    workspace: str = "",
    resume: str = "auto",
    export_uri: str = "",
    placement: dict = {},
    limits: dict = {},
    ending: dict = {},
    logging: dict = {},
    secrets: dict = {},
    data: dict = {},
    # End of what `make edges` writes.
    run: dict = {},
    run_id: str = "",
    namespace: str = "",
    task_settings: dict = {},
    task_config: dsl.TaskConfig = None,
) -> str:
    """Submit or adopt the TrainJob of a training step, without waiting for it: `wait_train_job` does, and can be small.

    The parameters are those of `train`, without those of waiting. After a failure, running this step again submits the next
    attempt. The lease of the waiting step begins with the submission.

    Args:
        runtime: Training runtime. Defaults to the builtin trainer's runtime, torch-distributed for a function or code, else trl-sft.
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
        dataset_uri: Dataset: hf://, s3://, gs://, az://, https://, pvc:// or file:///path; see docs/sources.md. cache://SCHEMA/TABLE
            reads a table from a data cache; see docs/data-cache.md.
        dataset_digest: Digest of the prepared dataset; nodes reject any other.
        model_uri: Base model: hf://, s3://, gs://, az://, pvc:// or file:///path; see docs/sources.md.
        model_digest: Digest of the prepared model; nodes reject any other.
        workspace: Volume that the steps of a run share: pvc://CLAIM[/FOLDER], or with ?size=20Gi[&class=&access=&retain=] to create
            it. The run's folder on it is mounted at /workspace.
        resume: Where a new job starts: auto (the run's last checkpoint, if the request has not changed), last (also if it has),
            never, the URI of an exported checkpoint, or weights:URI (the run's last checkpoint, else the weights of that export at
            step 0).
        export_uri: Where the run exports checkpoints; resume=auto starts from there if the workspace has no checkpoint.
        placement: Where the pods run: queue, topology, nodes, volumes, annotations, patches. Its settings: queue_name,
            priority_class, topology, node_selector, tolerations, affinity, volumes, volume_mounts, annotations, runtime_patches,
            runtime_kind, submission_mode, memory_check.
        limits: When a job has failed, and how often it may begin again: deadlines, stuck and diverged jobs, restarts, budgets. Its
            settings: queue_timeout_seconds, start_timeout_seconds, run_timeout_seconds, lost_node_timeout_seconds, fail_if_stuck,
            fail_on_divergence, restarts, preemption_budget, job_retries.
        ending: What happens to jobs at a cancellation, without a waiting step, and when the step is repeated. Its settings:
            on_cancel, waiter_lease_seconds, adopt_finished, on_changed_request, previous_jobs, tie_to_run.
        logging: Which logs of the job are shown. Its settings: logs, log_bytes.
        secrets: Names of Secrets whose keys pods get as variables. Its settings: store_secret, hub_secret, dataset_secret,
            model_secret, resume_secret.
        data: What the initializers of dataset and model must know, and the data cache. Its settings: metadata_loc, num_data_nodes,
            worker_mem, dataset_env, model_env, model_shape.
        run: The run, as start_run returns it, see `train`.
        run_id: Id of the run, required without `run`: it gives the job the same name in every try.
        namespace: Namespace of the TrainJob. Empty: the manifest's, else that of the credentials.
        task_settings: Set when a pipeline is compiled: what is set on the task and Kubeflow Pipelines does not pass on.
        task_config: Set by Kubeflow Pipelines: what is set on the task is for the TrainJob, and not for the pod that waits for it.

    Returns:
        Handle of the job, for wait_train_job.
    """
    from trainwright.jobs.request.task_config import Task
    from trainwright.jobs.request.typed_parameters import typed_parameters
    from trainwright.steps.ends.step_end import explained_end, write_line
    from trainwright.steps.training.kfp_parameters import run_of
    from trainwright.steps.training.submit import train_step_of

    parameters = {
        # Written by `make edges` from TrainRequest.
        "runtime": runtime,
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
        "dataset_uri": dataset_uri,
        "dataset_digest": dataset_digest,
        "model_uri": model_uri,
        "model_digest": model_digest,
        "workspace": workspace,
        "resume": resume,
        "export_uri": export_uri,
        "placement": placement,
        "limits": limits,
        "ending": ending,
        "logging": logging,
        "secrets": secrets,
        "data": data,
        # End of what `make edges` writes.
    }
    with explained_end():
        of_run = run_of(run, needs_id=True, run_id=run_id, namespace=namespace)
        request = TrainRequest.parse_some(typed_parameters(TrainRequest, parameters))
        handle = train_step_of(request, of_run, task=Task(task_config, task_settings)).submit()
        write_line(f"TrainJob {handle.namespace}/{handle.name}")
    return handle.model_dump_json()
