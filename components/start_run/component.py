"""Start a run: give it its name, and create its workspace where it does not exist."""

from typing import NamedTuple

from kfp import dsl

from trainwright.components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def start_run(
    workspace: str,
    run_id: str = "",
    pipeline_run_id: str = "",
    workspace_path: str = "/workspace",
    num_nodes: int = 1,
    namespace: str = "",
    submission_mode: str = "",
) -> NamedTuple("Outputs", [("run_id", str), ("claim", str), ("workspace", str), ("workspace_path", str)]):
    """Name a run, and see to it that its workspace exists, before any step mounts it.

    Args:
        workspace: pvc://CLAIM[/FOLDER], the bare name of a claim, or pvc://CLAIM?size=20Gi[&class=&access=&retain=] to create it.
        run_id: Names the run: the same name resumes it. Empty takes pipeline_run_id.
        pipeline_run_id: dsl.PIPELINE_JOB_ID_PLACEHOLDER, so that each run of a recurring pipeline has a name of its own.
        workspace_path: Where the steps mount the claim.
        num_nodes: Nodes that share a claim that is created.
        namespace: Where the claim is; empty takes the one of the credentials.
        submission_mode: auto, trainjob or jobset; empty takes TRAINWRIGHT_SUBMISSION_MODE, else auto: what the cluster calls for.

    Returns:
        run_id: The run's name.
        claim: The claim, to be mounted.
        workspace: The workspace as the other components take it.
        workspace_path: Where the steps find it: workspace_path, with its folder.
    """
    import sys

    from trainwright.api.errors import ApiError
    from trainwright.cluster import NoCluster, connect_for_jobs
    from trainwright.jobs import TrainJobError
    from trainwright.jobs.outcomes import exit_code_of
    from trainwright.steps.start import start_run

    try:
        if not (run_id or pipeline_run_id):
            raise ValueError("run_id: give one, or pipeline_run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER")
        cluster = connect_for_jobs(mode=submission_mode)
        started = start_run(
            cluster,
            workspace,
            owner="kfp",
            run_id=run_id or pipeline_run_id,
            namespace=namespace or cluster.default_namespace,
            workspace_path=workspace_path,
            num_nodes=num_nodes or 1,
        )
    except (TrainJobError, ApiError, NoCluster, ValueError) as error:
        print(error, file=sys.stderr, flush=True)
        raise SystemExit(exit_code_of(error)) from None
    print(f"run {started.run_id} in {started.workspace}", flush=True)
    return started.run_id, started.claim, started.workspace, started.path
