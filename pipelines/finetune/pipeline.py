"""Fine-tuning from end to end: dataset and model prepared, a TrainJob, its checkpoint exported, the model evaluated before and after.

The same pipeline runs in kfp's local runner on a laptop and on a cluster; there every step mounts the claim of the workspace.
"""

from typing import Dict  # noqa: UP035  (kfp reads it at run time)

from kfp import dsl, kubernetes

from trainwright.components import evaluate, export_checkpoint, initialize_dataset, initialize_model, train

MOUNT = "/workspace"


@dsl.pipeline(name="finetune", description="Fine-tune a language model with a TrainJob and export its checkpoint.")
def finetune(
    run_id: str,
    dataset_uri: str,
    model_uri: str,
    export_uri: str,
    workspace_claim: str,
    workspace_path: str = MOUNT,
    namespace: str = "",
    runtime: str = "trl-sft",
    num_nodes: int = 1,
    num_proc_per_node: int = 0,
    resources_per_node: Dict[str, str] = {},  # noqa: B006, UP006
    settings: str = "{}",
    env: Dict[str, str] = {},  # noqa: B006, UP006
    resume: str = "auto",
    resume_secret: str = "",
    test_fraction: float = 0.1,
    sample_row: int = 0,
    max_evaluation_rows: int = 0,
):
    """Fine-tune `model_uri` on `dataset_uri`; see the components for the parameters.

    Args:
        workspace_claim: An existing PersistentVolumeClaim; with several nodes it must be ReadWriteMany.
        workspace_path: Where the steps see the claim. On a cluster it is mounted at the default; only the local runner,
            which mounts nothing, needs another path.
    """
    dataset = initialize_dataset(dataset_uri=dataset_uri, workspace_path=workspace_path, test_fraction=test_fraction)
    model = initialize_model(model_uri=model_uri, workspace_path=workspace_path)
    training = train(
        run_id=run_id,
        workspace=f"pvc://{workspace_claim}",
        dataset_uri=dataset_uri,
        model_uri=model_uri,
        dataset_digest=dataset.outputs["digest"],
        model_digest=model.outputs["Output"],
        runtime=runtime,
        namespace=namespace,
        num_nodes=num_nodes,
        num_proc_per_node=num_proc_per_node,
        resources_per_node=resources_per_node,
        settings=settings,
        env=env,
        resume=resume,
        resume_secret=resume_secret,
        export_uri=export_uri,
    )
    exported = export_checkpoint(
        run_id=run_id, trainjob=training.outputs["trainjob"], export_uri=export_uri, workspace_path=workspace_path
    )
    evaluation = evaluate(
        run_id=run_id,
        checkpoint_uri=exported.outputs["uri"],
        checkpoint_digest=exported.outputs["digest"],
        workspace=f"pvc://{workspace_claim}",
        workspace_path=workspace_path,
        namespace=namespace,
        sample_row=sample_row,
        max_rows=max_evaluation_rows,
        env=env,
    )
    for task in (dataset, model, exported, evaluation):
        kubernetes.mount_pvc(task, pvc_name=workspace_claim, mount_path=MOUNT)
    for task in (dataset, model, training, exported, evaluation):
        task.set_caching_options(False)  # the steps know by their receipts what is done; a cache knows only their parameters
