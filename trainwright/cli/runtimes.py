"""`trainwright runtimes`: the bundled training runtimes, and those of a cluster."""

from __future__ import annotations

import difflib
from typing import Annotated

import typer

from trainwright.api.errors import AlreadyExists, BadRequest
from trainwright.api.kinds import CLUSTER_TRAINING_RUNTIME
from trainwright.api.names import FRAMEWORK_LABEL
from trainwright.api.objects import Obj, labels_of, name_of
from trainwright.cli.connection import HomeChoice, Kubeconfig, cluster_for
from trainwright.cli.errors import bad_input_exits, cluster_errors_exit
from trainwright.cli.output import Format, ViewFormat, print_object, print_table
from trainwright.cluster.protocol import Cluster
from trainwright.runtimes import bundled_runtime, bundled_runtimes

group = typer.Typer(no_args_is_help=True, help="Training runtimes: bundled, and those of a cluster.")


def register(app: typer.Typer) -> None:
    app.add_typer(group, name="runtimes")


@group.command("list")
def list_runtimes(
    cluster: Annotated[bool, typer.Option("--cluster", help="Those of the cluster instead of the bundled ones.")] = False,
    kubeconfig: Kubeconfig = None,
    home: HomeChoice = None,
    output: Annotated[ViewFormat, typer.Option("-o", "--output")] = ViewFormat.table,
) -> None:
    """List runtimes."""
    with bad_input_exits():
        runtimes = bundled_runtimes()
    if cluster:
        with cluster_errors_exit():
            runtimes = cluster_for(kubeconfig, home).list(CLUSTER_TRAINING_RUNTIME).items
    if output is not ViewFormat.table:
        print_object({"apiVersion": "v1", "kind": "List", "items": runtimes}, output)
        return
    rows = ((name_of(runtime), labels_of(runtime).get(FRAMEWORK_LABEL, ""), ", ".join(_steps(runtime))) for runtime in runtimes)
    print_table(("NAME", "FRAMEWORK", "STEPS"), rows)


@group.command("show")
def show_runtime(
    name: Annotated[str, typer.Argument(help="Name of a bundled runtime.")],
    output: Annotated[Format, typer.Option("-o", "--output")] = Format.yaml,
) -> None:
    """Print a bundled runtime, ready for `kubectl apply -f -`."""
    with bad_input_exits():
        runtime = _bundled(name)
    print_object(runtime, output)


@group.command("apply")
def apply_runtimes(
    names: Annotated[list[str] | None, typer.Argument(help="Names of bundled runtimes; none stands for all.")] = None,
    kubeconfig: Kubeconfig = None,
    home: HomeChoice = None,
) -> None:
    """Create bundled runtimes in a cluster, or bring those of their names up to date."""
    with bad_input_exits():
        runtimes = [_bundled(name) for name in names] if names else bundled_runtimes()
    with cluster_errors_exit():
        cluster = cluster_for(kubeconfig, home)
        for runtime in runtimes:
            print(f"clustertrainingruntime/{name_of(runtime)} {_applied(cluster, runtime)}")


def _applied(cluster: Cluster, runtime: Obj) -> str:
    """Raises Conflict where somebody else changes the runtime at the same moment."""
    try:
        cluster.create(runtime)
    except AlreadyExists:
        current = cluster.get(CLUSTER_TRAINING_RUNTIME, name_of(runtime))
        wanted = {**current, "spec": runtime["spec"]}
        wanted["metadata"] = {**current["metadata"], "labels": {**labels_of(current), **labels_of(runtime)}}
        after = cluster.update(wanted)
        same = after["metadata"].get("resourceVersion") == current["metadata"].get("resourceVersion")
        return "unchanged" if same else "configured"
    return "created"


def _bundled(name: str) -> Obj:
    """Raises BadRequest with the name that is meant, or all there are."""
    runtime = bundled_runtime(name)
    if runtime is not None:
        return runtime
    known = [name_of(one) for one in bundled_runtimes()]
    near = difflib.get_close_matches(name, known, 1, 0.5)
    meant = f"did you mean {near[0]!r}? " if near else ""
    raise BadRequest(f"there is no bundled runtime {name!r}; {meant}known: {', '.join(known)}")


def _steps(runtime: Obj) -> list[str]:
    return [job["name"] for job in runtime["spec"]["template"]["spec"].get("replicatedJobs") or []]
