"""The whole chain with a tool for each part: DVC, Ray Data, a TrainJob, trackers fed live, a store, lm-evaluation-harness, a registry.

Each tool runs on its embedded default unless an address is given, and is installed on first use in an environment of its own.
"""

from kfp import dsl

from trainwright.components import (
    evaluate,
    export_checkpoint,
    initialize_dataset,
    initialize_model,
    preprocess_dataset,
    promote_model,
    pull_dvc_data,
    register_model,
    train,
    trainwright_exit_handler,
)
from trainwright.pipelines.task_settings import (
    MOUNT,
    add_credentials,
    add_tracking,
    begin,
    mount_workspace,
    set_up,
)


@dsl.pipeline(
    name="full-pipeline", description="From versioned data to a registered model: DVC, Ray Data, TrainJob, trackers, lm-eval."
)
def full_pipeline(
    model_uri: str,
    export_uri: str,
    workspace: str,
    source: str = "",
    dvc_repo: str = "",
    dvc_path: str = "",
    dvc_rev: str = "",
    run_id: str = "",
    workspace_path: str = MOUNT,
    namespace: str = "",
    submission_mode: str = "",
    store_secret: str = "trainwright-store",
    hub_secret: str = "trainwright-hub",
    tracking_secret: str = "trainwright-tracking",
    columns: dict = {},
    transform: str = "",
    deduplicate_by: list = [],
    min_chars: int = 0,
    max_chars: int = 0,
    ray_address: str = "",
    layout: str = "",
    test_fraction: float = 0.1,
    runtime: str = "",
    settings: dict = {},
    image: str = "",
    env: dict = {},
    num_nodes: int = 0,
    num_proc_per_node: int = 0,
    resources_per_node: dict = {},
    queue_name: str = "",
    run_timeout_seconds: int = 604800,
    job_retries: int = 0,
    on_cancel: str = "suspend",
    tracking: list = ["mlflow", "wandb", "tensorboard"],
    evaluation_runtime: str = "causal-lm-evaluation",
    evaluation_image: str = "",
    evaluation_resources: dict = {},
    evaluation_tasks: list = ["held_out"],
    task_limit: int = 0,
    retention: str = "keep=5",
    promote: str = "better",
    promote_metric: str = "loss",
    greater_is_better: bool = False,
    registry: str = "mlflow://trainwright",
    registry_alias: str = "",
) -> None:
    """Version the data, preprocess them, fine-tune `model_uri`, export, evaluate on tasks, promote and register.

    Parameters not described here are those of `finetune`.

    Args:
        source: Data without dvc_repo: a path, file://, s3://, https:// or another address that `dvc import-url` takes. A DVC
            repository in the workspace makes a version of it.
        dvc_repo: Git repository with DVC: its address, or a path.
        dvc_path: File or folder in dvc_repo.
        dvc_rev: Branch, tag or commit of dvc_repo. Empty: the default branch.
        workspace: An existing PersistentVolumeClaim, by name or as pvc://CLAIM[/FOLDER], or pvc://CLAIM?size=20Gi to create
            it in the first step. With several nodes it must be ReadWriteMany.
        run_id: Id of the run; reusing it resumes the run. Empty: each run gets its own.
        workspace_path: Path of the claim in the steps. Change it only for the local runner, which mounts nothing.
        store_secret: Optional Secret with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL ..., for every step.
        hub_secret: Optional Secret with the key HF_TOKEN, for every step.
        tracking_secret: Optional Secret with MLFLOW_TRACKING_URI, MLFLOW_TRACKING_TOKEN, WANDB_API_KEY ..., for the steps that
            track and register.
        columns: Column of the source for each column to keep, as {"prompt": "frage"}. Empty: all as they are.
        transform: Source of a function of a row, which returns the row, or None to drop it.
        deduplicate_by: Columns in which equal rows are duplicates. Empty: all.
        min_chars: Minimum length of all texts of a row together.
        max_chars: Maximum length of all texts of a row together; 0 has none.
        ray_address: Address of a Ray cluster that sees the workspace at the same path. Empty: Ray is started in the step.
        layout: Layout of the dataset: alpaca, prompt-completion, messages, text ... Empty: detected from the columns.
        test_fraction: Fraction of the rows to hold out, if the source has no split.
        tracking: Where metrics go while the training runs: mlflow, wandb, tensorboard, each also with an address. Without one they
            write to tracking/ in the workspace.
        evaluation_runtime: Runtime of the evaluation.
        evaluation_image: Image of the evaluation. Empty: the runtime's.
        evaluation_resources: Resources of the evaluation's node.
        evaluation_tasks: Tasks of lm-evaluation-harness, such as arc_easy, before and after; held_out counts exact matches.
        task_limit: Maximum number of examples of each task; 0: all.
        retention: Folders of earlier runs kept on the workspace: always, or keep=N of the finished runs.
        promote: Promote the export to champion of export_uri: better (than the champion) or always. Empty: no.
        promote_metric: Figure of the evaluation by which it is compared, such as loss or held_out/exact_match.
        greater_is_better: Whether a greater figure is better.
        registry: Register the export: mlflow://model, hf://org/name[@branch] or model-registry://host/model. Empty: no. MLflow
            without a server keeps its models in the workspace.
        registry_alias: Tag (Hub) or alias (MLflow) that is moved to the registered version.
    """
    with trainwright_exit_handler(
        run_id=run_id, on_failure=on_cancel, namespace=namespace, submission_mode=submission_mode, name="full-pipeline"
    ):
        run = begin(
            workspace=workspace,
            run_id=run_id,
            workspace_path=workspace_path,
            num_nodes=num_nodes,
            namespace=namespace,
            submission_mode=submission_mode,
        )
        pulled = pull_dvc_data(source=source, repo=dvc_repo, path=dvc_path, rev=dvc_rev, workspace_path=run.path, run_id=run.id)
        preprocessed = preprocess_dataset(
            data_uri=pulled.outputs["data_uri"],
            workspace_path=run.path,
            columns=columns,
            transform=transform,
            deduplicate_by=deduplicate_by,
            min_chars=min_chars,
            max_chars=max_chars,
            ray_address=ray_address,
            run_id=run.id,
        )
        dataset = initialize_dataset(
            dataset_uri=preprocessed.outputs["data_uri"],
            workspace_path=run.path,
            layout=layout,
            test_fraction=test_fraction,
            run_id=run.id,
        )
        model = initialize_model(model_uri=model_uri, workspace_path=run.path, run_id=run.id)
        training = train(
            run_id=run.id,
            workspace=run.workspace,
            workspace_path=run.path,
            tracking=tracking,
            dataset_uri=preprocessed.outputs["data_uri"],
            model_uri=model_uri,
            dataset_digest=dataset.outputs["digest"],
            model_digest=model.outputs["Output"],
            export_uri=export_uri,
            store_secret=store_secret,
            hub_secret=hub_secret,
            namespace=namespace,
            submission_mode=submission_mode,
            runtime=runtime,
            settings=settings,
            image=image,
            env=env,
            num_nodes=num_nodes,
            num_proc_per_node=num_proc_per_node,
            resources_per_node=resources_per_node,
            queue_name=queue_name,
            run_timeout_seconds=run_timeout_seconds,
            job_retries=job_retries,
            on_cancel=on_cancel,
        )
        exported = export_checkpoint(
            run_id=run.id, trainjob=training.outputs["trainjob"], export_uri=export_uri, workspace_path=run.path
        )
        evaluation = evaluate(
            run_id=run.id,
            checkpoint_uri=exported.outputs["uri"],
            checkpoint_digest=exported.outputs["digest"],
            workspace=run.workspace,
            workspace_path=run.path,
            runtime=evaluation_runtime,
            tasks=evaluation_tasks,
            task_limit=task_limit,
            retention=retention,
            image=evaluation_image,
            resources_per_node=evaluation_resources,
            hub_secret=hub_secret,
            env=env,
            queue_name=queue_name,
            on_cancel=on_cancel,
            namespace=namespace,
            submission_mode=submission_mode,
        )
        with dsl.If(promote != "", name="promote"):
            promotion = promote_model(
                export_uri=export_uri,
                checkpoint_uri=exported.outputs["uri"],
                checkpoint_digest=exported.outputs["digest"],
                evaluation=evaluation.outputs["evaluation"],
                rule=promote,
                metric=promote_metric,
                greater_is_better=greater_is_better,
            )
        with dsl.If(registry != "", name="register"):
            registration = register_model(
                checkpoint_uri=exported.outputs["uri"],
                checkpoint_digest=exported.outputs["digest"],
                registry=registry,
                alias=registry_alias,
                workspace_path=run.path,
            )
            registration.after(evaluation)
        with_files = (pulled, preprocessed, dataset, model, training, exported, evaluation, registration)
        mount_workspace(with_files, run.claim)
        steps = (*with_files, promotion)
        add_credentials(steps, store_secret, hub_secret)
        add_tracking((training, registration), tracking_secret)
        set_up((run.task, *steps))
