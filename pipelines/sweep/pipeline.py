"""A sweep: the same fine-tuning with other settings, one TrainJob for each trial and only so many at once; the best one is exported.

A trial whose training fails does not end the sweep.
"""

from kfp import dsl

from trainwright import components
from trainwright.pipelines.chain import PARALLELISM, Chain, add_hub_credentials, add_store_credentials, mount_workspace, set_up
from trainwright.steps.chain import SWEEP

DEFAULTS = {"retention": "keep=5"}
"""Settings of the evaluation that hold unless the form has others."""


@dsl.pipeline(name="sweep", description="Fine-tune with different settings, and export what is best.")
def sweep(
    # Written by `make edges` from Sweep.
    model_uri: str,
    export_uri: str,
    dataset_uri: str,
    workspace: str,
    num_nodes: int = 0,
    resources_per_node: dict = {},
    queue_name: str = "",
    training: dict = {},
    data: dict = {},
    evaluation: dict = {},
    space: dict = {},
    trials: list = [],
    max_trials: int = 0,
    metric: str = "eval_loss",
    promote: str = "",
    seed: int = 0,
    greater_is_better: bool = False,
    plan_only: bool = False,
    store_secret: str = "trainwright-store",
    hub_secret: str = "trainwright-hub",
    # End of what `make edges` writes.
) -> None:
    """Fine-tune `model_uri` on `dataset_uri` once for each trial, export the best one, and evaluate it.

    Every setting without a parameter goes by its name into `training`, `data` or `evaluation`; the first step checks them.
    `settings` of `training` are those of all trials. How many trials train at once is set when the pipeline is compiled:
    TRAINWRIGHT_PARALLELISM, default 2.

    Args:
        model_uri: Model: Base model: hf://, s3://, gs://, az://, pvc:// or file:///path. Example: hf://Qwen/Qwen3-0.6B
        export_uri: Export: Folder of exported checkpoints; each run has its own below it. Example: s3://models/support
        dataset_uri: Data: Dataset: hf://, s3://, gs://, az://, https://, pvc:// or file:///path. Example: s3://data/support.jsonl
        workspace: Run: Claim that the steps of a run share: its name, pvc://CLAIM[/FOLDER], or pvc://CLAIM?size=20Gi to create it.
            With several nodes it must be ReadWriteMany. Example: pvc://training?size=50Gi
        num_nodes: Training: Number of nodes. 0: the runtime's, usually 1. Example: 2
        resources_per_node: Training: Resources of each node. Empty: the runtime's; a GPU must be asked for. Example:
            {"nvidia.com/gpu": 1, "memory": "32Gi"}
        queue_name: Run: Kueue LocalQueue that the jobs wait in. Empty: they start at once. Example: gpu-queue
        training: Training: Any other setting of the training and its run by name, see docs/reference/parameters.md. Example:
            {"image": "registry.example.com/trainer:1.4", "settings": {"save_steps": 100}}
        data: Data: Any other setting of the preparation of data by name. Example: {"layout": "messages", "test_fraction": 0.05}
        evaluation: Evaluation: Any other setting of export, evaluation, promotion and registration by name. Example: {"max_rows":
            500, "promote_margin": 0.01}
        space: Search: For each setting the list of its values, or a range. Example: {"learning_rate": {"min": 1e-5, "max": 1e-3,
            "log": true}, "lora_rank": [8, 16]}
        trials: Search: Instead of a space: the settings of each trial. Example: [{"learning_rate": 1e-4}, {"learning_rate": 2e-4}]
        max_trials: Search: Maximum number of trials; 0: all combinations. Required for ranges. Example: 8
        metric: Search: Reported value by which trials are compared; eval_loss is measured on held-out rows.
        promote: Evaluation: Promote the export to champion: if it is better than the present one, or always. Empty: no.
        seed: Search: Seed of the random choice of trials.
        greater_is_better: Search: Whether a greater metric is better.
        plan_only: Search: Only choose the trials; the log of the step plan-trials lists them.
        store_secret: Credentials: Secret with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL ..., for all that reads
            stores. It need not exist.
        hub_secret: Credentials: Secret with the key HF_TOKEN, for all that reads the hub. It need not exist.
    """
    form = {
        # Written by `make edges` from Sweep.
        "model_uri": model_uri,
        "export_uri": export_uri,
        "dataset_uri": dataset_uri,
        "workspace": workspace,
        "num_nodes": num_nodes,
        "resources_per_node": resources_per_node,
        "queue_name": queue_name,
        "training": training,
        "data": data,
        "evaluation": evaluation,
        "space": space,
        "trials": trials,
        "max_trials": max_trials,
        "metric": metric,
        "promote": promote,
        "seed": seed,
        "greater_is_better": greater_is_better,
        "plan_only": plan_only,
        "store_secret": store_secret,
        "hub_secret": hub_secret,
        # End of what `make edges` writes.
    }
    with components.trainwright_exit_handler(training=training, name="sweeping"):
        chain = Chain(form, SWEEP, defaults=DEFAULTS)
        dataset, model = chain.add(components.initialize_dataset), chain.add(components.initialize_model)
        plan = chain.add(components.plan_trials)
        with dsl.If(plan_only == False, name="go-on"):  # noqa: E712  kfp compares at run time
            with dsl.ParallelFor(items=plan.outputs["trials"], name="trials", parallelism=PARALLELISM) as trial:
                trained = chain.add(components.train, trial=trial)
            best = chain.add(components.pick_trial, outcomes=dsl.Collected(trained.outputs["outcome"]))
            exported = chain.add(components.export_checkpoint)
            evaluated = chain.add(components.evaluate)
            with dsl.If(promote != "", name="promote"):
                promotion = chain.add(components.promote_model)
        read_stores = (dataset, model, exported, evaluated, promotion)
        with_files = (*read_stores, plan, best)
        mount_workspace(with_files, chain.start.outputs["claim"])
        add_store_credentials(read_stores, store_secret)
        add_hub_credentials((dataset, model), hub_secret)
        set_up((chain.start, *with_files, trained))
