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
    store_secret: str = "",
    hub_secret: str = "",
    preprocesses: bool = False,
    # End of what `make edges` writes.
    run_id: str = "",
    pipeline_run_id: str = "",
    workspace_path: str = "/workspace",
    namespace: str = "",
) -> NamedTuple(
    "Outputs",
    [
        ("run", dict),
        ("run_id", str),
        ("claim", str),
        ("workspace_path", str),
    ],
):
    """Set the id of a run, check the settings of all its steps, and create its workspace if necessary, before any step mounts it.

    `training`, `data` and `evaluation` take any setting of those steps by its name. The settings of the run as a whole are among those
    of the training: run_id, namespace, submission_mode, workspace_path. The other components take the output `run` for all of them.

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
        store_secret: Secret with credentials of the object store, for the pods of the training.
        hub_secret: Secret with HF_TOKEN, for the pods of training and evaluation.
        preprocesses: Whether a step preprocesses the data, whose settings `data` may have.
        run_id: Id of the run; reusing it resumes the run. Empty: pipeline_run_id.
        pipeline_run_id: dsl.PIPELINE_JOB_ID_PLACEHOLDER, so that each run of a recurring pipeline has its own id.
        workspace_path: Where the steps mount the claim.
        namespace: Namespace of the claim. Empty: that of the credentials.

    Returns:
        run: The run: where its steps are done, and the settings of each, for the parameter `run` of the other components.
        run_id: Id of the run.
        claim: Name of the claim, for mounting.
        workspace_path: Path of the workspace in the steps that mount the claim.
    """
    import os

    from trainwright.jobs.request.typed_parameters import with_changing_marked
    from trainwright.steps.ends.clean import suspend_abandoned
    from trainwright.steps.ends.step_end import explained_end, write_line
    from trainwright.steps.phases import phases_of
    from trainwright.steps.requests import RunPlace, StartRun
    from trainwright.steps.start import check_exports, start_run
    from trainwright.steps.training.kfp_parameters import asked
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
        "store_secret": store_secret,
        "hub_secret": hub_secret,
        "preprocesses": preprocesses,
        # End of what `make edges` writes.
    }
    with explained_end():
        request = asked(StartRun, parameters)
        place = RunPlace.parse({"run_id": run_id, "namespace": namespace, "workspace_path": workspace_path})
        run = phases_of(request, place)
        if not (run.run_id or pipeline_run_id):
            raise ValueError("run_id: set run_id, or pipeline_run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER")
        cluster = connect_for_jobs(mode=run.submission_mode)
        space = run.namespace or cluster.default_namespace
        started = start_run(
            cluster,
            request.workspace,
            owner="kfp",
            run_id=run.run_id or pipeline_run_id,
            namespace=space,
            workspace_path=run.workspace_path,
            num_nodes=run.training.num_nodes or 1,
        )
        # A pod of a server has only the claim that the pipeline mounts; a local run starts every step on this machine.
        check_exports(request.export_uri, pods_mount=run.workspace_path if os.environ.get("KFP_POD_NAME") else "")
        for job in suspend_abandoned(cluster, space):
            write_line(f"TrainJob {job.namespace}/{job.name} of {job.submitter}, whose step is gone: {job.outcome}")
    write_line(f"run {started.run_id} in {started.workspace}")
    run = run.having(run_id=started.run_id, claim=started.claim, workspace=started.workspace, workspace_path=started.path)
    return with_changing_marked(run.given_values()), started.run_id, started.claim, started.path
