"""Start a run: set its id, and create its workspace if it does not exist."""

from typing import NamedTuple

from trainwright.components.step import step


@step
def start_run(
    # Written by `make edges` from StartRun.
    workspace: str,
    num_nodes: int = 1,
    # End of what `make edges` writes.
    run_id: str = "",
    pipeline_run_id: str = "",
    workspace_path: str = "/workspace",
    namespace: str = "",
    submission_mode: str = "",
) -> NamedTuple("Outputs", [("run_id", str), ("claim", str), ("workspace", str), ("workspace_path", str)]):
    """Set the id of a run and create its workspace if necessary, before any step mounts it.

    Jobs in the namespace that earlier runs have left behind, and whose waiting step is gone longer than its lease, are suspended.

    Args:
        workspace: pvc://CLAIM[/FOLDER], the name of a claim, or pvc://CLAIM?size=20Gi[&class=&access=&retain=] to create it.
        num_nodes: Number of nodes that share a new claim.
        run_id: Id of the run; reusing it resumes the run. Empty: pipeline_run_id.
        pipeline_run_id: dsl.PIPELINE_JOB_ID_PLACEHOLDER, so that each run of a recurring pipeline has its own id.
        workspace_path: Where the steps mount the claim.
        namespace: Namespace of the claim. Empty: that of the credentials.
        submission_mode: auto, trainjob or jobset. Empty: TRAINWRIGHT_SUBMISSION_MODE, else auto, which depends on the cluster.

    Returns:
        run_id: Id of the run.
        claim: Name of the claim, for mounting.
        workspace_path: Path of the workspace in the steps: workspace_path and the folder in the claim.
    """
    from trainwright.steps.clean import suspend_abandoned
    from trainwright.steps.requests import StartRun
    from trainwright.steps.start import start_run
    from trainwright.steps.step_end import explained_end, write_line
    from trainwright.submission import connect_for_jobs

    parameters = {
        # Written by `make edges` from StartRun.
        "workspace": workspace,
        "num_nodes": num_nodes,
        # End of what `make edges` writes.
    }
    with explained_end():
        if not (run_id or pipeline_run_id):
            raise ValueError("run_id: set run_id, or pipeline_run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER")
        cluster = connect_for_jobs(mode=submission_mode)
        started = start_run(
            cluster,
            **StartRun.from_parameters(parameters).model_dump(),
            owner="kfp",
            run_id=run_id or pipeline_run_id,
            namespace=namespace or cluster.default_namespace,
            workspace_path=workspace_path,
        )
        for job in suspend_abandoned(cluster, namespace or cluster.default_namespace):
            write_line(f"TrainJob {job.namespace}/{job.name} of {job.submitter}, whose step is gone: {job.outcome}")
    write_line(f"run {started.run_id} in {started.workspace}")
    return started.run_id, started.claim, started.workspace, started.path
