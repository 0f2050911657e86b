"""Retraining, to be run again and again: trains when the data have changed, and promotes what is better than the champion.

Champion and candidate are measured on the same held-out rows. With `roll_back`, a run only undoes the last promotion.
"""

from kfp import dsl

from trainwright.components import (
    evaluate,
    export_checkpoint,
    initialize_dataset,
    initialize_model,
    promote_model,
    read_champion,
    roll_back_model,
    train,
    trainwright_exit_handler,
)
from trainwright.pipelines.task_settings import MOUNT, add_credentials, begin, mount_workspace, set_up


@dsl.pipeline(name="retrain", description="Train again when the data have changed, and promote what is better than the champion.")
def retrain(
    dataset_uri: str,
    model_uri: str,
    export_uri: str,
    workspace: str,
    workspace_path: str = MOUNT,
    namespace: str = "",
    submission_mode: str = "",
    store_secret: str = "trainwright-store",
    hub_secret: str = "trainwright-hub",
    layout: str = "",
    columns: dict = {},
    subset: str = "",
    split: str = "",
    test_fraction: float = 0.1,
    max_rows: int = 0,
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
    evaluation_runtime: str = "causal-lm-evaluation",
    evaluation_image: str = "",
    evaluation_resources: dict = {},
    max_evaluation_rows: int = 0,
    evaluation_tasks: list = [],
    rule: str = "better",
    metric: str = "loss",
    greater_is_better: bool = False,
    margin: float = 0.0,
    alias: str = "champion",
    always_train: bool = False,
    roll_back: bool = False,
    retention: str = "keep=5",
) -> None:
    """Fine-tune `model_uri` on `dataset_uri` if the data differ from those of the champion, and promote the result if it is better.

    Every run has its own id, so the pipeline can be a recurring run. Parameters not described here are those of `finetune`.

    Args:
        workspace: An existing PersistentVolumeClaim, by name or as pvc://CLAIM[/FOLDER], or pvc://CLAIM?size=20Gi to create
            it in the first step. With several nodes it must be ReadWriteMany.
        workspace_path: Path of the claim in the steps. Change it only for the local runner, which mounts nothing.
        store_secret: Optional Secret with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL ..., for every step.
        hub_secret: Optional Secret with the key HF_TOKEN, for every step.
        layout: Layout of the dataset: alpaca, prompt-completion, messages, text ... Empty: detected from the columns.
        columns: Column of the dataset for each column to read, as {"prompt": "frage", "completion": "antwort"}.
        subset: Subset of the dataset, by its name on the hub or its folder; * takes all files. Empty: the default or only one.
        split: Split of the dataset to train on. Empty: train.
        test_fraction: Fraction of the rows to hold out, if the source has no split.
        max_rows: Maximum rows of the dataset; 0 takes all.
        evaluation_runtime: Runtime of the evaluations.
        evaluation_image: Image of the evaluations. Empty: the runtime's.
        evaluation_resources: Resources of the evaluation's node.
        max_evaluation_rows: Maximum rows to evaluate; 0 evaluates all held-out rows.
        evaluation_tasks: Tasks of lm-evaluation-harness, such as arc_easy, before and after; held_out counts exact matches.
        rule: better than the champion, or always to promote without comparison.
        metric: Figure of the evaluations to compare.
        greater_is_better: Whether a greater metric is better.
        margin: By how much it must be better.
        alias: Name of what is in use.
        always_train: Train also if the champion was trained on these data.
        roll_back: Let the alias name again what it named before, and do nothing else.
        retention: Folders of earlier runs kept on the workspace: always, or keep=N of the finished runs.
    """
    run_id = dsl.PIPELINE_JOB_ID_PLACEHOLDER
    with trainwright_exit_handler(on_failure=on_cancel, namespace=namespace, submission_mode=submission_mode, name="retraining"):
        with dsl.If(roll_back == True, name="roll-back"):  # noqa: E712  kfp compares at run time
            rolled_back = roll_back_model(export_uri=export_uri, alias=alias, reason="parameter roll_back", run_id=run_id)
        with dsl.Else(name="go-on"):
            run = begin(
                workspace=workspace,
                workspace_path=workspace_path,
                num_nodes=num_nodes,
                namespace=namespace,
                submission_mode=submission_mode,
            )
            dataset = initialize_dataset(
                dataset_uri=dataset_uri,
                workspace_path=run.path,
                layout=layout,
                columns=columns,
                subset=subset,
                split=split,
                test_fraction=test_fraction,
                max_rows=max_rows,
                run_id=run.id,
            )
            model = initialize_model(model_uri=model_uri, workspace_path=run.path, run_id=run.id)
            champion = read_champion(
                export_uri=export_uri,
                dataset_digest=dataset.outputs["digest"],
                model_digest=model.outputs["Output"],
                always_train=always_train,
                alias=alias,
                run_id=run.id,
            )
            with dsl.If(champion.outputs["Output"] != "current", name="train"):
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
                measured = {
                    "run_id": run.id,
                    "workspace": run.workspace,
                    "workspace_path": run.path,
                    "runtime": evaluation_runtime,
                    "image": evaluation_image,
                    "resources_per_node": evaluation_resources,
                    "max_rows": max_evaluation_rows,
                    "tasks": evaluation_tasks,
                    "hub_secret": hub_secret,
                    "env": env,
                    "queue_name": queue_name,
                    "on_cancel": on_cancel,
                    "namespace": namespace,
                    "submission_mode": submission_mode,
                }
                candidate = evaluate(
                    checkpoint_uri=exported.outputs["uri"],
                    checkpoint_digest=exported.outputs["digest"],
                    retention=retention,
                    **measured,
                )
                decided = {
                    "export_uri": export_uri,
                    "checkpoint_uri": exported.outputs["uri"],
                    "checkpoint_digest": exported.outputs["digest"],
                    "evaluation": candidate.outputs["evaluation"],
                    "rule": rule,
                    "metric": metric,
                    "greater_is_better": greater_is_better,
                    "margin": margin,
                    "alias": alias,
                }
                with dsl.If(champion.outputs["Output"] == "none", name="first"):
                    first = promote_model(**decided)
                with dsl.Else(name="compare"):
                    present = evaluate(
                        checkpoint_uri=champion.outputs["uri"],
                        checkpoint_digest=champion.outputs["digest"],
                        dataset_digest=dataset.outputs["digest"],
                        **measured,
                    )
                    compared = promote_model(
                        champion_evaluation=present.outputs["evaluation"], champion_digest=champion.outputs["digest"], **decided
                    )
        mount_workspace((dataset, model, exported, candidate, present), run.claim)
        steps = (rolled_back, dataset, model, champion, training, exported, candidate, present, first, compared)
        add_credentials(steps, store_secret, hub_secret)
        set_up((run.task, *steps))
