"""The whole chain with a tool for each part: DVC, Ray Data, a TrainJob, trackers fed live, a store, lm-evaluation-harness, a registry.

Each tool runs on its embedded default unless an address is given, and is installed on first use in an environment of its own.
"""

from kfp import dsl

from trainwright import components
from trainwright.pipelines.chain import Chain, add_hub_credentials, add_store_credentials, add_tracking, mount_workspace, set_up
from trainwright.steps.chain import FULL

DEFAULTS = {"tasks": ["held_out"], "retention": "keep=5"}
"""Settings of the evaluation that hold unless the form has others."""


@dsl.pipeline(
    name="full-pipeline", description="From versioned data to a registered model: DVC, Ray Data, TrainJob, trackers, lm-eval."
)
def full_pipeline(
    # Written by `make edges` from FullPipeline.
    model_uri: str,
    export_uri: str,
    workspace: str,
    num_nodes: int = 0,
    resources_per_node: dict = {},
    queue_name: str = "",
    method: str = "",
    training: dict = {},
    data: dict = {},
    evaluation: dict = {},
    source: str = "",
    dvc_repo: str = "",
    dvc_path: str = "",
    dvc_rev: str = "",
    promote: str = "better",
    tracking: list = ["mlflow", "wandb", "tensorboard"],
    registry: str = "mlflow://trainwright",
    store_secret: str = "trainwright-store",
    hub_secret: str = "trainwright-hub",
    tracking_secret: str = "trainwright-tracking",
    # End of what `make edges` writes.
) -> None:
    """Version the data, preprocess them, fine-tune `model_uri`, export, evaluate on tasks, promote and register.

    Every setting without a parameter goes by its name into `training`, `data` or `evaluation`; the first step checks them.
    `data` has the settings of the preprocessing too. Without a server, MLflow keeps its models in the workspace.

    Args:
        model_uri: Model: Base model: hf://, s3://, gs://, az://, pvc:// or file:///path. Example: hf://Qwen/Qwen3-0.6B
        export_uri: Export: Folder of exported checkpoints; each run has its own below it. Example: s3://models/support
        workspace: Run: Claim that the steps of a run share: its name, pvc://CLAIM[/FOLDER], or pvc://CLAIM?size=20Gi to create it.
            With several nodes it must be ReadWriteMany. Example: pvc://training?size=50Gi
        num_nodes: Training: Number of nodes. 0: the runtime's, usually 1. Example: 2
        resources_per_node: Training: Resources of each node. Empty: the runtime's; a GPU must be asked for. Example:
            {"nvidia.com/gpu": 1, "memory": "32Gi"}
        queue_name: Run: Kueue LocalQueue that the jobs wait in. Empty: they start at once. Example: gpu-queue
        method: Training: lora, qlora with a base model in 4 bits, or full to train all weights. Empty: the trainer's default (sft:
            lora).
        training: Training: Any other setting of the training and its run by name, see docs/reference/parameters.md. Example:
            {"image": "registry.example.com/trainer:1.4", "settings": {"save_steps": 100}}
        data: Data: Any other setting of the preparation of data by name. Example: {"layout": "messages", "test_fraction": 0.05}
        evaluation: Evaluation: Any other setting of export, evaluation, promotion and registration by name. Example: {"max_rows":
            500, "promote_margin": 0.01}
        source: Data: Data without dvc_repo: a path, file://, s3://, https://; DVC keeps a version of them. Example:
            s3://data/support
        dvc_repo: Data: Git repository with DVC: its address, or a path. Example: https://github.com/org/data
        dvc_path: Data: File or folder in dvc_repo. Example: support/train.jsonl
        dvc_rev: Data: Branch, tag or commit of dvc_repo. Empty: the default branch. Example: v3
        promote: Evaluation: Promote the export to champion: if it is better than the present one, or always. Empty: no.
        tracking: Training: Where metrics go: mlflow, wandb, tensorboard, each also with an address; else they write to tracking/ in
            the workspace.
        registry: Evaluation: Register the export: mlflow://model, hf://org/name[@branch] or model-registry://host/model. Empty: no.
        store_secret: Credentials: Secret with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL ..., for all that reads
            stores. It need not exist.
        hub_secret: Credentials: Secret with the key HF_TOKEN, for all that reads the hub. It need not exist.
        tracking_secret: Credentials: Secret with MLFLOW_TRACKING_URI, WANDB_API_KEY ..., for the steps that track and register. It
            need not exist.
    """
    form = {
        # Written by `make edges` from FullPipeline.
        "model_uri": model_uri,
        "export_uri": export_uri,
        "workspace": workspace,
        "num_nodes": num_nodes,
        "resources_per_node": resources_per_node,
        "queue_name": queue_name,
        "method": method,
        "training": training,
        "data": data,
        "evaluation": evaluation,
        "source": source,
        "dvc_repo": dvc_repo,
        "dvc_path": dvc_path,
        "dvc_rev": dvc_rev,
        "promote": promote,
        "tracking": tracking,
        "registry": registry,
        "store_secret": store_secret,
        "hub_secret": hub_secret,
        "tracking_secret": tracking_secret,
        # End of what `make edges` writes.
    }
    with components.trainwright_exit_handler(training=training, name="full-pipeline"):
        chain = Chain(form, FULL, defaults=DEFAULTS, preprocesses=True)
        pulled, preprocessed = chain.add(components.pull_dvc_data), chain.add(components.preprocess_dataset)
        dataset, model = chain.add(components.initialize_dataset), chain.add(components.initialize_model)
        trained = chain.add(components.train)
        exported = chain.add(components.export_checkpoint)
        evaluated = chain.add(components.evaluate)
        with dsl.If(promote != "", name="promote"):
            promotion = chain.add(components.promote_model)
        with dsl.If(registry != "", name="register"):
            registration = chain.add(components.register_model)
        read_stores = (pulled, dataset, model, trained, exported, evaluated, promotion, registration)
        with_files = (*read_stores, preprocessed)
        mount_workspace(with_files, chain.start.outputs["claim"])
        add_store_credentials(read_stores, store_secret)
        add_hub_credentials((dataset, model, registration), hub_secret)
        add_tracking((trained, registration), tracking_secret)
        set_up((chain.start, *with_files))
