"""End-to-end fine-tuning: prepare dataset and model, train in a TrainJob, export the checkpoint, evaluate before and after, and, if
asked for, promote and register it.

The same pipeline runs on a laptop with kfp's local runner, and on a cluster, where every step mounts the claim of the workspace.
"""

from kfp import dsl

from trainwright.components import (
    evaluate,
    export_checkpoint,
    initialize_dataset,
    initialize_model,
    promote_model,
    register_model,
    train,
    trainwright_exit_handler,
)
from trainwright.pipelines.task_settings import MOUNT, add_credentials, begin, mount_workspace, set_up


@dsl.pipeline(name="finetune", description="Fine-tune a language model with a TrainJob and export its checkpoint.")
def finetune(
    dataset_uri: str,
    model_uri: str,
    export_uri: str,
    workspace: str,
    run_id: str = "",
    workspace_path: str = MOUNT,
    namespace: str = "",
    submission_mode: str = "",
    store_secret: str = "trainwright-store",
    hub_secret: str = "trainwright-hub",
    layout: str = "",
    test_fraction: float = 0.1,
    max_rows: int = 0,
    columns: dict = {},
    subset: str = "",
    split: str = "",
    resumable: bool = True,
    sample_row: int = 0,
    max_evaluation_rows: int = 0,
    evaluation_tasks: list = [],
    evaluation_runtime: str = "causal-lm-evaluation",
    evaluation_image: str = "",
    evaluation_resources: dict = {},
    retention: str = "always",
    promote: str = "",
    promote_metric: str = "loss",
    registry: str = "",
    registry_alias: str = "",
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
    dataset_env: dict = {},
    model_env: dict = {},
    queue_name: str = "",
    priority_class: str = "",
    topology: str = "",
    node_selector: dict = {},
    tolerations: list = [],
    affinity: dict = {},
    volumes: list = [],
    volume_mounts: list = [],
    queue_timeout_seconds: int = 0,
    start_timeout_seconds: int = 21600,
    run_timeout_seconds: int = 604800,
    fail_if_stuck: bool = True,
    fail_on_divergence: bool = True,
    lost_node_timeout_seconds: int = 0,
    logs: str = "0",
    log_bytes: int = 16777216,
    resume: str = "auto",
    previous_jobs: str = "keep",
    preemption_budget: int = 3,
    job_retries: int = 0,
    restarts: int = 0,
    on_changed_request: str = "adopt",
    adopt_finished: bool = False,
    on_cancel: str = "suspend",
    waiter_lease_seconds: int = 600,
    tie_to_run: bool = True,
    dataset_secret: str = "",
    model_secret: str = "",
    resume_secret: str = "",
) -> None:
    """Fine-tune `model_uri` on `dataset_uri`. Parameters not described here are those of the component `train`.

    Args:
        workspace: An existing PersistentVolumeClaim, by name or as pvc://CLAIM[/FOLDER], or pvc://CLAIM?size=20Gi to create
            it in the first step. With several nodes it must be ReadWriteMany.
        run_id: Id of the run; reusing it resumes the run. Empty: each run gets its own.
        workspace_path: Path of the claim in the steps. Change it only for the local runner, which mounts nothing.
        store_secret: Optional Secret with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL ..., for every step.
        hub_secret: Optional Secret with the key HF_TOKEN, for every step.
        layout: Layout of the dataset: alpaca, prompt-completion, messages, text ... Empty: detected from the columns.
        test_fraction: Fraction of the rows to hold out, if the source has no split.
        max_rows: Maximum rows of the dataset; 0 takes all.
        columns: Column of the dataset for each column to read, as {"prompt": "frage", "completion": "antwort"}.
        subset: Subset of the dataset, by its name on the hub or its folder; * takes all files. Empty: the default or only one.
        split: Split of the dataset to train on. Empty: train.
        resumable: Also export optimizer and random states.
        sample_row: Row (from 0) whose prompt is completed before and after fine-tuning.
        max_evaluation_rows: Maximum rows to evaluate; 0 evaluates all held-out rows.
        evaluation_tasks: Tasks of lm-evaluation-harness, such as arc_easy, before and after; held_out counts exact matches.
        evaluation_runtime: Runtime of the evaluation.
        evaluation_image: Image of the evaluation. Empty: the runtime's.
        evaluation_resources: Resources of the evaluation's node.
        retention: Folders of earlier runs kept on the workspace: always, or keep=N of the finished runs.
        promote: Promote the export to champion of export_uri: better (than the champion) or always. Empty: no.
        promote_metric: Figure of the evaluation by which it is compared.
        registry: Register the export: hf://org/name[@branch], model-registry://host/model or mlflow://model. Empty: no.
        registry_alias: Tag (Hub) or alias (MLflow) that is moved to the registered version.
    """
    with trainwright_exit_handler(
        run_id=run_id, on_failure=on_cancel, namespace=namespace, submission_mode=submission_mode, name="fine-tuning"
    ):
        run = begin(
            workspace=workspace,
            run_id=run_id,
            workspace_path=workspace_path,
            num_nodes=num_nodes,
            namespace=namespace,
            submission_mode=submission_mode,
        )
        dataset = initialize_dataset(
            dataset_uri=dataset_uri,
            workspace_path=run.path,
            layout=layout,
            test_fraction=test_fraction,
            max_rows=max_rows,
            columns=columns,
            subset=subset,
            split=split,
            run_id=run.id,
        )
        model = initialize_model(model_uri=model_uri, workspace_path=run.path, run_id=run.id)
        training = train(
            run_id=run.id,
            workspace=run.workspace,
            dataset_uri=dataset_uri,
            model_uri=model_uri,
            dataset_digest=dataset.outputs["digest"],
            model_digest=model.outputs["Output"],
            export_uri=export_uri,
            store_secret=store_secret,
            hub_secret=hub_secret,
            namespace=namespace,
            submission_mode=submission_mode,
            runtime=runtime,
            runtime_kind=runtime_kind,
            builtin=builtin,
            settings=settings,
            image=image,
            command=command,
            args=args,
            env=env,
            func=func,
            func_args=func_args,
            packages_to_install=packages_to_install,
            pip_index_urls=pip_index_urls,
            code=code,
            manifest=manifest,
            num_nodes=num_nodes,
            num_proc_per_node=num_proc_per_node,
            resources_per_node=resources_per_node,
            labels=labels,
            annotations=annotations,
            runtime_patches=runtime_patches,
            dataset_env=dataset_env,
            model_env=model_env,
            queue_name=queue_name,
            priority_class=priority_class,
            topology=topology,
            node_selector=node_selector,
            tolerations=tolerations,
            affinity=affinity,
            volumes=volumes,
            volume_mounts=volume_mounts,
            queue_timeout_seconds=queue_timeout_seconds,
            start_timeout_seconds=start_timeout_seconds,
            run_timeout_seconds=run_timeout_seconds,
            fail_if_stuck=fail_if_stuck,
            fail_on_divergence=fail_on_divergence,
            lost_node_timeout_seconds=lost_node_timeout_seconds,
            logs=logs,
            log_bytes=log_bytes,
            resume=resume,
            previous_jobs=previous_jobs,
            preemption_budget=preemption_budget,
            job_retries=job_retries,
            restarts=restarts,
            on_changed_request=on_changed_request,
            adopt_finished=adopt_finished,
            on_cancel=on_cancel,
            waiter_lease_seconds=waiter_lease_seconds,
            tie_to_run=tie_to_run,
            dataset_secret=dataset_secret,
            model_secret=model_secret,
            resume_secret=resume_secret,
        )
        exported = export_checkpoint(
            run_id=run.id,
            trainjob=training.outputs["trainjob"],
            export_uri=export_uri,
            workspace_path=run.path,
            resumable=resumable,
        )
        evaluation = evaluate(
            run_id=run.id,
            checkpoint_uri=exported.outputs["uri"],
            checkpoint_digest=exported.outputs["digest"],
            workspace=run.workspace,
            workspace_path=run.path,
            runtime=evaluation_runtime,
            sample_row=sample_row,
            max_rows=max_evaluation_rows,
            tasks=evaluation_tasks,
            retention=retention,
            image=evaluation_image,
            resources_per_node=evaluation_resources,
            labels=labels,
            annotations=annotations,
            hub_secret=hub_secret,
            namespace=namespace,
            submission_mode=submission_mode,
            env=env,
            queue_name=queue_name,
            priority_class=priority_class,
            topology=topology,
            node_selector=node_selector,
            tolerations=tolerations,
            affinity=affinity,
            queue_timeout_seconds=queue_timeout_seconds,
            start_timeout_seconds=start_timeout_seconds,
            run_timeout_seconds=run_timeout_seconds,
            logs=logs,
            log_bytes=log_bytes,
            on_cancel=on_cancel,
            waiter_lease_seconds=waiter_lease_seconds,
            tie_to_run=tie_to_run,
        )
        with dsl.If(promote != "", name="promote"):
            promotion = promote_model(
                export_uri=export_uri,
                checkpoint_uri=exported.outputs["uri"],
                checkpoint_digest=exported.outputs["digest"],
                evaluation=evaluation.outputs["evaluation"],
                rule=promote,
                metric=promote_metric,
            )
        with dsl.If(registry != "", name="register"):
            registration = register_model(
                checkpoint_uri=exported.outputs["uri"],
                checkpoint_digest=exported.outputs["digest"],
                registry=registry,
                alias=registry_alias,
            )
            registration.after(evaluation)
        mount_workspace((dataset, model, exported, evaluation), run.claim)
        steps = (dataset, model, training, exported, evaluation, promotion, registration)
        add_credentials(steps, store_secret, hub_secret)
        set_up((run.task, *steps))
