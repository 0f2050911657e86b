"""Train: a TrainJob, submitted or adopted, followed to its end."""

from typing import Dict, NamedTuple  # noqa: UP035  (kfp reads these at run time)

from kfp import dsl

from trainwright.components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def train(
    run_id: str,
    workspace: str,
    dataset_uri: str,
    model_uri: str,
    metrics: dsl.Output[dsl.Metrics],
    dataset_digest: str = "",
    model_digest: str = "",
    runtime: str = "trl-sft",
    namespace: str = "",
    num_nodes: int = 1,
    num_proc_per_node: int = 0,
    resources_per_node: Dict[str, str] = {},  # noqa: B006, UP006
    settings: str = "{}",
    env: dict = {},  # noqa: B006
    dataset_secret: str = "",
    model_secret: str = "",
    queue_name: str = "",
    priority_class: str = "",
    topology: str = "",
    node_selector: Dict[str, str] = {},  # noqa: B006, UP006
    tolerations: list = [],  # noqa: B006
    affinity: dict = {},  # noqa: B006
    queue_timeout_seconds: int = 0,
    start_timeout_seconds: int = 0,
    run_timeout_seconds: int = 0,
    stopping: str = "suspend",
    submission_mode: str = "",
    resume: str = "auto",
    export_uri: str = "",
    resume_secret: str = "",
    earlier: str = "keep",
    preemption_budget: int = 3,
    logs: str = "0",
    log_bytes: int = 16777216,
) -> NamedTuple("Outputs", [("trainjob", str), ("namespace", str)]):
    """Fine-tune by supervised fine-tuning in a TrainJob, and wait until it has succeeded.

    A retry of this step adopts the job that the first try made. After a failure the next try submits a new one, which goes
    on from the last whole checkpoint on the workspace. A cancelled step suspends its job; running the step again resumes it.

    Args:
        run_id: Names the run: with it the job has the same name in every try, and no step is answered from a cache.
        workspace: pvc://CLAIM or pvc://CLAIM/FOLDER, the volume that initializers, nodes and exporter share; with
            ?size=20Gi&class=NAME&access=MODE&retain=keep (all but size optional) the claim is made where it does not exist.
        dataset_uri: The dataset, as given to initialize_dataset.
        model_uri: The base model, as given to initialize_model.
        metrics: Last values that the training reported.
        dataset_digest: Digest from initialize_dataset; recorded with the job.
        model_digest: Digest from initialize_model; recorded with the job.
        runtime: A ClusterTrainingRuntime with the steps of trl-sft.
        namespace: Where the TrainJob is made; empty takes the one of the credentials.
        num_nodes: Nodes that train together.
        num_proc_per_node: Processes on a node; 0 leaves it to the runtime (GPUs, else CPUs).
        resources_per_node: Limits and requests of a node, such as {"nvidia.com/gpu": "1", "memory": "64Gi"}.
        settings: JSON of the training settings: method (lora or full), epochs, steps, learning_rate, batch_size,
            gradient_accumulation, max_length, lora_rank, lora_alpha, save_steps, logging_steps, seed, cpu, extra.
        env: Variables of the training program. A credential comes by reference, as {"HF_TOKEN": {"valueFrom":
            {"secretKeyRef": {"name": SECRET, "key": KEY}}}}; one that is written out is refused.
        dataset_secret: A Secret whose keys become variables of the dataset initializer.
        model_secret: The same for the model initializer.
        queue_name: A LocalQueue of Kueue, which lets the job start.
        priority_class: A WorkloadPriorityClass of that queue.
        topology: required:KEY, preferred:KEY, unconstrained (Kueue) or exclusive:KEY (JobSet), KEY being a label of nodes.
        node_selector: Labels of the nodes that may train; as in a pod, like the next two. Initializers run anywhere.
        tolerations: Besides those of the runtime, such as [{"key": "nvidia.com/gpu", "operator": "Exists"}].
        affinity: Node and pod affinity.
        queue_timeout_seconds: Give up when the job is queued for longer; 0 waits.
        start_timeout_seconds: Give up when the nodes do not train by then; 0 waits.
        run_timeout_seconds: Stop a job that trains longer; 0 waits.
        stopping: What becomes of the job when the step is cancelled, out of time or broken: suspend, delete or keep.
        submission_mode: auto, trainjob or jobset; empty takes TRAINWRIGHT_SUBMISSION_MODE, else auto: what the cluster calls for.
        resume: Where a new job goes on from: auto (the last whole checkpoint), never, or the URI of an exported checkpoint.
        export_uri: Where this run exports to: with auto a job whose workspace has no checkpoint goes on from its export.
        resume_secret: A Secret with what reads exports (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL ...).
        earlier: What becomes of ended earlier jobs of this step once the next one is submitted: keep or delete.
        preemption_budget: Times that the step submits the next job by itself because pods were taken away; 0 leaves it to retries.
        logs: Whose log is printed as it grows: a rank of the training nodes, all, STEP:RANK, STEP:all, or none.
        log_bytes: How much of it; after that only its last lines, when the job has ended.

    Returns:
        trainjob: Name of the TrainJob.
        namespace: Its namespace.
    """
    import sys
    from functools import partial

    from pydantic import ValidationError

    from trainwright.api.errors import ApiError
    from trainwright.checkpoints.resume_source import exported_by
    from trainwright.cluster import NoCluster, connect_for_jobs
    from trainwright.jobs import Deadlines, Identity, Live, Teller, TrainJobError, TrainRequest
    from trainwright.jobs.cancel import Stopping, stop_job
    from trainwright.jobs.outcomes import exit_code_of
    from trainwright.jobs.progress import progress_of
    from trainwright.jobs.run import run_to_end
    from trainwright.jobs.sft import SftSettings

    try:
        leave = partial(stop_job, how=Stopping(stopping))
        cluster = connect_for_jobs(mode=submission_mode)
        resources = {name: str(amount) for name, amount in resources_per_node.items()}
        request = TrainRequest(
            runtime=runtime,
            dataset_uri=dataset_uri,
            dataset_secret=dataset_secret,
            model_uri=model_uri,
            model_secret=model_secret,
            args=SftSettings.model_validate_json(settings).arguments(),
            env=env,
            num_nodes=num_nodes,
            num_proc_per_node=num_proc_per_node or None,
            resources_per_node={"limits": resources, "requests": resources} if resources else {},
            workspace=workspace,
            resume=resume,
            resume_secret=resume_secret,
            earlier=earlier,
            queue_name=queue_name,
            priority_class=priority_class,
            topology=topology,
            node_selector=node_selector,
            tolerations=tolerations,
            affinity=affinity,
            active_deadline_seconds=run_timeout_seconds or None,
            annotations={"trainwright.dev/dataset-digest": dataset_digest, "trainwright.dev/model-digest": model_digest},
        )
        teller = Teller(partial(print, flush=True))
        trainjob = run_to_end(
            cluster,
            request,
            Identity("kfp", run_id, "train"),
            namespace or cluster.default_namespace,
            latest_checkpoint=exported_by(run_id, export_uri) if export_uri else None,
            preemption_budget=preemption_budget,
            deadlines=Deadlines(
                queue=queue_timeout_seconds or None, start=start_timeout_seconds or None, run=run_timeout_seconds or None
            ),
            tell=teller,
            logs=Live.parse(logs, log_bytes),
            on_signal=leave,
            on_error=leave,
        )
    except (TrainJobError, ApiError, NoCluster, ValidationError, ValueError) as error:
        print(error, file=sys.stderr, flush=True)
        raise SystemExit(exit_code_of(error)) from None
    for name, value in (teller.progress or progress_of(trainjob)).metrics:
        try:
            metrics.log_metric(name, float(value))
        except ValueError:
            metrics.metadata[name] = value
    return trainjob["metadata"]["name"], trainjob["metadata"]["namespace"]
