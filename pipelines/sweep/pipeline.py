"""A sweep: the same fine-tuning with other settings, one TrainJob for each trial and only so many at once; the best one is exported.

A trial whose training fails does not end the sweep.
"""

from kfp import dsl

from trainwright.components import (
    evaluate,
    export_checkpoint,
    initialize_dataset,
    initialize_model,
    pick_trial,
    plan_trials,
    promote_model,
    train,
    trainwright_exit_handler,
)
from trainwright.pipelines.task_settings import (
    MOUNT,
    PARALLELISM,
    add_credentials,
    begin,
    mount_workspace,
    set_up,
)


@dsl.pipeline(name="sweep", description="Fine-tune with different settings, and export what is best.")
def sweep(
    dataset_uri: str,
    model_uri: str,
    export_uri: str,
    workspace: str,
    trials: list = [],
    space: dict = {},
    max_trials: int = 0,
    seed: int = 0,
    plan_only: bool = False,
    metric: str = "eval_loss",
    greater_is_better: bool = False,
    run_id: str = "",
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
    retention: str = "keep=5",
    promote: str = "",
    promote_metric: str = "loss",
) -> None:
    """Fine-tune `model_uri` on `dataset_uri` once for each trial, export the best one, and evaluate it.

    How many trials train at once is set when the pipeline is compiled: TRAINWRIGHT_PARALLELISM, default 2. Parameters not described
    here are those of `finetune`.

    Args:
        workspace: An existing PersistentVolumeClaim, by name or as pvc://CLAIM[/FOLDER], or pvc://CLAIM?size=20Gi to create
            it in the first step. With several nodes or trials at once it must be ReadWriteMany.
        trials: Settings of each trial, as [{"learning_rate": 1e-4}, {"learning_rate": 2e-4}].
        space: Instead of trials: for each setting the list of its values, or a range as {"min": 1e-5, "max": 1e-3, "log": true}.
        max_trials: Maximum number of trials; 0: all combinations of the values.
        seed: Of the random choice of trials.
        plan_only: Only choose the trials; the log of the step plan-trials lists them.
        metric: Reported value by which the trials are compared; eval_loss is measured on the held-out rows after each epoch.
        greater_is_better: Whether a greater value is better.
        run_id: Id of the run; reusing it resumes the run. Empty: each run gets its own.
        workspace_path: Path of the claim in the steps. Change it only for the local runner, which mounts nothing.
        store_secret: Optional Secret with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL ..., for every step.
        hub_secret: Optional Secret with the key HF_TOKEN, for every step.
        layout: Layout of the dataset: alpaca, prompt-completion, messages, text ... Empty: detected from the columns.
        columns: Column of the dataset for each column to read, as {"prompt": "frage", "completion": "antwort"}.
        subset: Subset of the dataset, by its name on the hub or its folder; * takes all files. Empty: the default or only one.
        split: Split of the dataset to train on. Empty: train.
        test_fraction: Fraction of the rows to hold out, if the source has no split.
        max_rows: Maximum rows of the dataset; 0 takes all.
        settings: Settings of all trials; those of a trial replace them.
        run_timeout_seconds: Maximum seconds of the training of one trial, which has failed after that. Default: a week. 0: no limit.
        evaluation_runtime: Runtime of the evaluation of the best trial.
        evaluation_image: Image of the evaluation. Empty: the runtime's.
        evaluation_resources: Resources of the evaluation's node.
        max_evaluation_rows: Maximum rows to evaluate; 0 evaluates all held-out rows.
        evaluation_tasks: Tasks of lm-evaluation-harness, such as arc_easy, before and after; held_out counts exact matches.
        retention: Folders of earlier runs and trials kept on the workspace: always, or keep=N of the finished ones.
        promote: Promote the best trial to champion of export_uri: better (than the champion) or always. Empty: no.
        promote_metric: Figure of the evaluation by which it is compared with the champion.
    """
    with trainwright_exit_handler(
        run_id=run_id, on_failure=on_cancel, namespace=namespace, submission_mode=submission_mode, name="sweeping"
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
            columns=columns,
            subset=subset,
            split=split,
            test_fraction=test_fraction,
            max_rows=max_rows,
            run_id=run.id,
        )
        model = initialize_model(model_uri=model_uri, workspace_path=run.path, run_id=run.id)
        plan = plan_trials(
            run_id=run.id,
            settings=settings,
            trials=trials,
            space=space,
            max_trials=max_trials,
            seed=seed,
            metric=metric,
            workspace_path=run.path,
            dataset_digest=dataset.outputs["digest"],
            model_digest=model.outputs["Output"],
        )
        # Inside of a condition kfp's local runner gives the trainings what other steps returned; directly in a loop it does not.
        with dsl.If(plan_only == False, name="go-on"):  # noqa: E712  kfp compares at run time
            with dsl.ParallelFor(items=plan.outputs["trials"], name="trials", parallelism=PARALLELISM) as trial:
                training = train(
                    run_id=run.id,
                    trial=trial,
                    workspace=run.workspace,
                    dataset_uri=dataset_uri,
                    model_uri=model_uri,
                    dataset_digest=dataset.outputs["digest"],
                    model_digest=model.outputs["Output"],
                    store_secret=store_secret,
                    hub_secret=hub_secret,
                    namespace=namespace,
                    submission_mode=submission_mode,
                    runtime=runtime,
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
            best = pick_trial(
                run_id=run.id,
                outcomes=dsl.Collected(training.outputs["outcome"]),
                metric=metric,
                greater_is_better=greater_is_better,
                workspace_path=run.path,
            )
            exported = export_checkpoint(
                run_id=run.id,
                trainjob=best.outputs["trainjob"],
                trial_index=best.outputs["index"],
                export_uri=export_uri,
                workspace_path=run.path,
            )
            evaluation = evaluate(
                run_id=run.id,
                trial_index=best.outputs["index"],
                checkpoint_uri=exported.outputs["uri"],
                checkpoint_digest=exported.outputs["digest"],
                workspace=run.workspace,
                workspace_path=run.path,
                runtime=evaluation_runtime,
                image=evaluation_image,
                resources_per_node=evaluation_resources,
                max_rows=max_evaluation_rows,
                tasks=evaluation_tasks,
                retention=retention,
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
                )
        mount_workspace((dataset, model, plan, best, exported, evaluation), run.claim)
        steps = (dataset, model, plan, training, best, exported, evaluation, promotion)
        add_credentials(steps, store_secret, hub_secret)
        set_up((run.task, *steps))
