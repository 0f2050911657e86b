"""Retraining, to be run again and again: trains when the data have changed, and promotes what is better than the champion.

Champion and candidate are measured on the same held-out rows. With `roll_back`, a run only undoes the last promotion.
"""

from kfp import dsl

from trainwright import components
from trainwright.pipelines.chain import Chain, add_hub_credentials, add_store_credentials, mount_workspace, set_up
from trainwright.steps.chain import RETRAINING

DEFAULTS = {"retention": "keep=5"}
"""Settings of the evaluation that hold unless the form has others."""


@dsl.pipeline(name="retrain", description="Train again when the data have changed, and promote what is better than the champion.")
def retrain(
    # Written by `make edges` from Retraining.
    model_uri: str,
    export_uri: str,
    dataset_uri: str,
    workspace: str,
    num_nodes: int = 0,
    resources_per_node: dict = {},
    queue_name: str = "",
    method: str = "",
    runtime: str = "",
    epochs: float = 0.0,
    learning_rate: float = 0.0,
    training: dict = {},
    data: dict = {},
    evaluation: dict = {},
    promote: str = "better",
    always_train: bool = False,
    warm_start: bool = False,
    roll_back: bool = False,
    store_secret: str = "trainwright-store",
    hub_secret: str = "trainwright-hub",
    # End of what `make edges` writes.
) -> None:
    """Fine-tune `model_uri` on `dataset_uri` if the data differ from those of the champion, and promote the result if it is better.

    Every setting without a parameter goes by its name into `training`, `data` or `evaluation`; the first step checks them.
    Every run has its own id, so that the pipeline can be a recurring run. promote_alias of `evaluation` names the alias.

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
        method: Training: lora, qlora with a base model in 4 bits, or full to train all weights. Empty: the trainer's default (sft:
            lora).
        runtime: Training: Training runtime. Empty: trl-sft for supervised fine-tuning, or that of training.builtin. Example:
            torch-distributed
        epochs: Training: Passes over the training rows. 0: the trainer's default (sft: 1). Example: 3
        learning_rate: Training: Learning rate. 0: the trainer's default (sft: 2e-4). Example: 0.0001
        training: Training: Any other setting of the training and its run by name, see docs/reference/parameters.md. Example:
            {"image": "registry.example.com/trainer:1.4", "settings": {"save_steps": 100}}
        data: Data: Any other setting of the preparation of data by name. Example: {"layout": "messages", "test_fraction": 0.05}
        evaluation: Evaluation: Any other setting of export, evaluation, promotion and registration by name. Example: {"max_rows":
            500, "promote_margin": 0.01}
        promote: Evaluation: When to promote: if better than the champion, always, or never, so that a person decides.
        always_train: Run: Whether to train even if the data and the base model are those of the champion.
        warm_start: Training: Whether to start from the champion's weights instead of the base model.
        roll_back: Run: Only restore the previous export of the alias, and train nothing.
        store_secret: Credentials: Secret with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL ..., for all that reads
            stores. It need not exist.
        hub_secret: Credentials: Secret with the key HF_TOKEN, for all that reads the hub. It need not exist.
    """
    form = {
        # Written by `make edges` from Retraining.
        "model_uri": model_uri,
        "export_uri": export_uri,
        "dataset_uri": dataset_uri,
        "workspace": workspace,
        "num_nodes": num_nodes,
        "resources_per_node": resources_per_node,
        "queue_name": queue_name,
        "method": method,
        "runtime": runtime,
        "epochs": epochs,
        "learning_rate": learning_rate,
        "training": training,
        "data": data,
        "evaluation": evaluation,
        "promote": promote,
        "always_train": always_train,
        "warm_start": warm_start,
        "roll_back": roll_back,
        "store_secret": store_secret,
        "hub_secret": hub_secret,
        # End of what `make edges` writes.
    }
    with components.trainwright_exit_handler(training=training, name="retraining"):
        with dsl.If(roll_back == True, name="roll-back"):  # noqa: E712  kfp compares at run time
            rolled_back = components.roll_back_model(
                export_uri=export_uri,
                evaluation=evaluation,
                reason="parameter roll_back",
                run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER,
            )
        with dsl.Else(name="go-on"):
            chain = Chain(form, RETRAINING, defaults=DEFAULTS)
            dataset, model = chain.add(components.initialize_dataset), chain.add(components.initialize_model)
            champion = chain.add(components.read_champion)
            with dsl.If(champion.outputs["Output"] != "current", name="train"):
                trained = chain.add(components.train)
                exported = chain.add(components.export_checkpoint)
                candidate = chain.add(components.evaluate)
                with dsl.If(promote != "never", name="decide"):
                    with dsl.If(champion.outputs["Output"] == "none", name="first"):
                        first = chain.add(components.promote_model)
                    with dsl.Else(name="compare"):
                        present = chain.add(components.evaluate, "evaluate-champion")
                        compared = chain.add(components.promote_model, "promote-over-champion")
        with_files = (dataset, model, champion, exported, candidate, present, first, compared)
        mount_workspace(with_files, chain.start.outputs["claim"])
        add_store_credentials((rolled_back, *with_files, trained), store_secret)
        add_hub_credentials((dataset, model), hub_secret)
        set_up((chain.start, rolled_back, *with_files, trained))
