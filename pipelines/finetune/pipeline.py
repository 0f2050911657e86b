"""End-to-end fine-tuning: prepare dataset and model, train in a TrainJob, export the checkpoint, evaluate before and after, and, if
asked for, promote and register it.

The same pipeline runs on a laptop, and on a cluster, where every step mounts the claim of the workspace.
"""

from kfp import dsl

from trainwright import components
from trainwright.pipelines.chain import Chain, add_hub_credentials, add_store_credentials, mount_workspace, set_up


@dsl.pipeline(name="finetune", description="Fine-tune a language model with a TrainJob and export its checkpoint.")
def finetune(
    # Written by `make edges` from FineTuning.
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
    batch_size: int = 0,
    max_length: int = 0,
    training: dict = {},
    data: dict = {},
    evaluation: dict = {},
    promote: str = "",
    registry: str = "",
    store_secret: str = "trainwright-store",
    hub_secret: str = "trainwright-hub",
    # End of what `make edges` writes.
) -> None:
    """Fine-tune `model_uri` on `dataset_uri`, export the checkpoint, evaluate it, and, if asked for, promote and register it.

    Every setting without a parameter goes by its name into `training`, `data` or `evaluation`; the first step checks them.

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
        batch_size: Training: Rows per step and process. 0: the trainer's default (sft: 8).
        max_length: Training: Tokens of a row; longer ones are cut. 0: the trainer's default (sft: 1024).
        training: Training: Any other setting of the training and its run by name, see docs/reference/parameters.md. Example:
            {"image": "registry.example.com/trainer:1.4", "settings": {"save_steps": 100}}
        data: Data: Any other setting of the preparation of data by name. Example: {"layout": "messages", "test_fraction": 0.05}
        evaluation: Evaluation: Any other setting of export, evaluation, promotion and registration by name. Example: {"max_rows":
            500, "promote_margin": 0.01}
        promote: Evaluation: Promote the export to champion: if it is better than the present one, or always. Empty: no.
        registry: Evaluation: Register the export: hf://org/name[@branch], model-registry://host/model or mlflow://model. Empty: no.
            Example: mlflow://support
        store_secret: Credentials: Secret with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL ..., for all that reads
            stores. It need not exist.
        hub_secret: Credentials: Secret with the key HF_TOKEN, for all that reads the hub. It need not exist.
    """
    form = {
        # Written by `make edges` from FineTuning.
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
        "batch_size": batch_size,
        "max_length": max_length,
        "training": training,
        "data": data,
        "evaluation": evaluation,
        "promote": promote,
        "registry": registry,
        "store_secret": store_secret,
        "hub_secret": hub_secret,
        # End of what `make edges` writes.
    }
    with components.trainwright_exit_handler(training=training, name="fine-tuning"):
        chain = Chain(form)
        dataset, model = chain.add(components.initialize_dataset), chain.add(components.initialize_model)
        trained = chain.add(components.train)
        exported = chain.add(components.export_checkpoint)
        evaluated = chain.add(components.evaluate)
        with dsl.If(promote != "", name="promote"):
            promotion = chain.add(components.promote_model)
        with dsl.If(registry != "", name="register"):
            registration = chain.add(components.register_model)
        with_files = (dataset, model, exported, evaluated, promotion, registration)
        mount_workspace(with_files, chain.start.outputs["claim"])
        add_store_credentials((*with_files, trained), store_secret)
        add_hub_credentials((dataset, model, registration), hub_secret)
        set_up((chain.start, *with_files, trained))
