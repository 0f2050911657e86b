"""Submit or adopt a TrainJob, and wait until it ends."""

from typing import NamedTuple

from kfp import dsl

from trainwright.components.step import step
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.steps.training.kfp_parameters import RUN


@step(settings=TrainRequest, needs=RUN, submits=True)
def train(
    metrics: dsl.Output[dsl.Metrics],
    loss_curve: dsl.Output[dsl.HTML],
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
    tracking: list = [],
    workspace_path: str = "",
    trial: str = "",
    dataset: dsl.Input[dsl.Dataset] = None,
    model: dsl.Input[dsl.Model] = None,
    task_settings: dict = {},
    task_config: dsl.TaskConfig = None,
) -> NamedTuple(
    "Outputs",
    [("trainjob", str), ("namespace", str), ("folder", str), ("results", dict), ("outcome", dict), ("usage", dict)],
):
    """Run any training in a TrainJob and wait until it succeeds: a runtime, a function, code, or a complete manifest.

    With only data and a workspace, the job is supervised fine-tuning in the runtime trl-sft. A retry of this step adopts the
    existing job. After a failure, the next try submits a new one, which resumes from the run's last complete checkpoint.
    Cancelling the step suspends its job; running the step again resumes it. All parameters are described in
    docs/reference/parameters.md; TrainJobOperator and `trainwright submit` share them.

    Args:
        metrics: Last values reported by the training, and the numbers that it returned.
        loss_curve: Reported loss over steps, as HTML.
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
        run: The run, as start_run returns it: its id, its workspace, where it is done, and further settings of the training.
        run_id: Id of the run, required without `run`: it gives the job the same name in every try, and prevents cached results.
            dsl.PIPELINE_JOB_ID_PLACEHOLDER gives each run its own id.
        namespace: Namespace of the TrainJob. Empty: the manifest's, else that of the credentials.
        tracking: Where metrics go while the training runs: mlflow, wandb, tensorboard, each also with an address, as
            mlflow:https://host, wandb:ENTITY/PROJECT, tensorboard:/folder. Credentials are variables of the step.
        workspace_path: Where the workspace is mounted in this step, if it is: trackers without a server write to tracking/ in it.
        trial: A trial of a sweep, as plan_trials returns it. It has its own TrainJob and folder, and its settings replace those of the
            same names. A training that fails, or exceeds limits.run_timeout_seconds, does not fail this step.
        dataset: A dataset that initialize_dataset has prepared, or that an earlier step has made at an address which pods can read.
        model: A base model that an earlier step has made, likewise.
        task_settings: Set when a pipeline is compiled: what is set on the task and Kubeflow Pipelines does not pass on.
        task_config: Set by Kubeflow Pipelines: what is set on the task is for the TrainJob, and not for the pod that waits for it.

    Returns:
        trainjob: Name of the TrainJob.
        namespace: Its namespace.
        folder: The run's folder in the workspace, such as runs/RUN; empty without a workspace.
        results: Return value of the function, or content of results.json; a value that is not an object is under "value".
        outcome: How the trial ended, for pick_trial: the reported values as numbers, or why it failed.
        usage: What the training used, for export_checkpoint: node_hours, gpu_hours, with a price cost and currency, and saved_hours
            if it resumed.
    """
    import os
    from pathlib import Path

    from trainwright.evaluation.loss_curve import MetricHistory
    from trainwright.jobs.request.task_config import Task
    from trainwright.jobs.request.typed_parameters import typed_parameters, unmarked
    from trainwright.steps.ends.step_end import explained_end, write_line
    from trainwright.steps.training.kfp_outputs import log_metrics
    from trainwright.steps.training.kfp_parameters import of_artifacts, run_of
    from trainwright.steps.training.submit import train_step_of
    from trainwright.steps.training.trials import Trial, run_trial
    from trainwright.tracking import parse_targets

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
        of_run = of_run.having(workspace_path=workspace_path)  # the run's is that of steps which mount the claim
        request = TrainRequest.parse_some(typed_parameters(TrainRequest, parameters)).joined(of_artifacts(dataset, model))
        one = Trial.parse(trial) if trial else Trial(index=0)
        folder = Path(of_run.workspace_path) / "tracking" if of_run.workspace_path else None
        targets, history = parse_targets(unmarked(tracking, "tracking"), os.environ, folder), MetricHistory()
        task = Task(task_config, task_settings, bool(tracking), bool(of_run.workspace_path))
        job = train_step_of(request, of_run, trial=one if trial else None, task=task)
        outcome, result = run_trial(one, lambda: job.run((history,), targets=targets, folder=folder), fails=not trial)
        if outcome.error:
            write_line(f"trial {one.index} failed: {outcome.error}")
    log_metrics(metrics, {**result.metrics, **result.usage.figures(), "saved_hours": result.saved_hours}, result.results)
    Path(loss_curve.path).write_text(history.loss_curve(), "utf-8")
    used = result.usage_as_object()
    return result.trainjob, result.namespace, result.folder, result.results_as_object(), outcome.model_dump(), used
