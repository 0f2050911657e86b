"""Start a run: set its id, and create its workspace if it does not exist."""

from typing import NamedTuple

from trainwright.components.step import step


@step
def start_run(
    # Written by `make edges` from StartRun.
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
    defaults: dict = {},
    export_uri: str = "",
    registry: str = "",
    preprocesses: bool = False,
    # End of what `make edges` writes.
    run_id: str = "",
    pipeline_run_id: str = "",
    workspace_path: str = "/workspace",
    namespace: str = "",
    submission_mode: str = "",
) -> NamedTuple(
    "Outputs",
    [
        ("run_id", str),
        ("claim", str),
        ("workspace", str),
        ("workspace_path", str),
        ("namespace", str),
        ("submission_mode", str),
        ("tie_to_run", bool),
        ("training", dict),
        ("settings", dict),
        ("data", dict),
        ("preprocessing", dict),
        ("export", dict),
        ("evaluation", dict),
        ("promotion", dict),
        ("registration", dict),
    ],
):
    """Set the id of a run, check the settings of all its steps, and create its workspace if necessary, before any step mounts it.

    `training`, `data` and `evaluation` take any setting of those steps by its name; the outputs of these names are for the parameter
    `more` of the components. The settings of the run as a whole are among those of the training: run_id, namespace, submission_mode,
    workspace_path, tie_to_run.

    Jobs in the namespace that earlier runs have left behind, and whose waiting step is gone longer than its lease, are suspended.

    Args:
        workspace: Claim that the steps of a run share: its name, pvc://CLAIM[/FOLDER], or pvc://CLAIM?size=20Gi to create it. With
            several nodes it must be ReadWriteMany.
        num_nodes: Number of nodes. 0: the runtime's, usually 1.
        resources_per_node: Resources of each node. Empty: the runtime's; a GPU must be asked for.
        queue_name: Kueue LocalQueue that the jobs wait in. Empty: they start at once.
        method: lora, qlora with a base model in 4 bits, or full to train all weights. Empty: the trainer's default (sft: lora).
        runtime: Training runtime. Empty: trl-sft for supervised fine-tuning, or that of training.builtin.
        epochs: Passes over the training rows. 0: the trainer's default (sft: 1).
        learning_rate: Learning rate. 0: the trainer's default (sft: 2e-4).
        batch_size: Rows per step and process. 0: the trainer's default (sft: 8).
        max_length: Tokens of a row; longer ones are cut. 0: the trainer's default (sft: 1024).
        training: Any other setting of the training and its run by name, see docs/reference/parameters.md.
        data: Any other setting of the preparation of data by name.
        evaluation: Any other setting of export, evaluation, promotion and registration by name.
        defaults: Settings of export and evaluation that hold unless `evaluation` has others.
        export_uri: Folder of exported checkpoints, refused if later steps do not see it. Empty: not checked.
        registry: Registry of a later step, which must see the exports. Empty: none.
        preprocesses: Whether a step preprocesses the data, whose settings `data` may have.
        run_id: Id of the run; reusing it resumes the run. Empty: pipeline_run_id.
        pipeline_run_id: dsl.PIPELINE_JOB_ID_PLACEHOLDER, so that each run of a recurring pipeline has its own id.
        workspace_path: Where the steps mount the claim.
        namespace: Namespace of the claim. Empty: that of the credentials.
        submission_mode: auto, trainjob or jobset. Empty: TRAINWRIGHT_SUBMISSION_MODE, else auto, which depends on the cluster.

    Returns:
        run_id: Id of the run.
        claim: Name of the claim, for mounting.
        workspace_path: Path of the workspace in the steps: workspace_path and the folder in the claim.
        namespace: Namespace of the run; empty: that of the credentials.
        submission_mode: auto, trainjob, jobset, or empty.
        tie_to_run: Whether TrainJobs are deleted together with the workflow.
        training: Settings for train.
        settings: Settings of the builtin trainer, for plan_trials.
        data: Settings for initialize_dataset.
        preprocessing: Settings for preprocess_dataset.
        export: Settings for export_checkpoint.
        evaluation: Settings for evaluate.
        promotion: Settings for promote_model.
        registration: Settings for register_model.
    """
    import os

    from trainwright.steps.clean import suspend_abandoned
    from trainwright.steps.phases import phases_of
    from trainwright.steps.requests import StartRun
    from trainwright.steps.start import check_exports, start_run
    from trainwright.steps.step_end import explained_end, write_line
    from trainwright.submission import connect_for_jobs

    parameters = {
        # Written by `make edges` from StartRun.
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
        "defaults": defaults,
        "export_uri": export_uri,
        "registry": registry,
        "preprocesses": preprocesses,
        # End of what `make edges` writes.
    }
    with explained_end():
        if not (run_id or pipeline_run_id or training.get("run_id")):
            raise ValueError("run_id: set run_id, or pipeline_run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER")
        given = {"run_id": run_id, "workspace_path": workspace_path, "namespace": namespace, "submission_mode": submission_mode}
        request = StartRun.from_parameters(parameters)
        phases = phases_of(request, given)
        run = phases.run
        cluster = connect_for_jobs(mode=run["submission_mode"])
        started = start_run(
            cluster,
            request.workspace,
            owner="kfp",
            run_id=run["run_id"] or pipeline_run_id,
            namespace=run["namespace"] or cluster.default_namespace,
            workspace_path=run["workspace_path"],
            num_nodes=phases.training.get("num_nodes") or 1,
        )
        # A pod of a server has only the claim that the pipeline mounts; a local run starts every step on this machine.
        check_exports(request.export_uri, pods_mount=run["workspace_path"] if os.environ.get("KFP_POD_NAME") else "")
        for job in suspend_abandoned(cluster, run["namespace"] or cluster.default_namespace):
            write_line(f"TrainJob {job.namespace}/{job.name} of {job.submitter}, whose step is gone: {job.outcome}")
    write_line(f"run {started.run_id} in {started.workspace}")
    return (
        started.run_id,
        started.claim,
        started.workspace,
        started.path,
        run["namespace"],
        run["submission_mode"],
        run["tie_to_run"],
        phases.training,
        phases.training.get("settings") or {},
        phases.data,
        phases.preprocessing,
        phases.export,
        phases.evaluation,
        phases.promotion,
        phases.registration,
    )
