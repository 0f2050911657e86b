"""`trainwright runtimes`: lists, shows and applies training runtimes."""

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
from trainwright.cli.help_pages import CommandsByGroup
from trainwright.cli.output import Format, ViewFormat, print_lines, print_object, print_table
from trainwright.cluster.protocol import Cluster
from trainwright.runtimes import bundled_runtime, bundled_runtimes

ImageSetting = Annotated[
    str,
    typer.Option(
        "--image",
        help="The project's own images, with {image} for launcher and trainer, or one for both. Default: TRAINWRIGHT_IMAGE.",
    ),
]
group = typer.Typer(cls=CommandsByGroup, no_args_is_help=True, help="Training runtimes: bundled ones, and those of a cluster.")


def register(app: typer.Typer) -> None:
    app.add_typer(group, name="runtimes")


@group.command("list")
def list_runtimes(
    cluster: Annotated[bool, typer.Option("--cluster", help="List runtimes of the cluster instead of bundled ones.")] = False,
    kubeconfig: Kubeconfig = None,
    home: HomeChoice = None,
    output: Annotated[ViewFormat, typer.Option("-o", "--output", help="Form of the output.")] = ViewFormat.table,
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
    print_table(
        ("NAME", "FRAMEWORK", "STEPS"), rows, empty="no runtimes in the cluster; `trainwright runtimes apply` installs them"
    )


@group.command("show")
def show_runtime(
    name: Annotated[str, typer.Argument(help="Name of a bundled runtime.")],
    image: ImageSetting = "",
    output: Annotated[Format, typer.Option("-o", "--output", help="Form of the output.")] = Format.yaml,
) -> None:
    """Print a bundled runtime, ready for `kubectl apply -f -`."""
    with bad_input_exits():
        runtime = _bundled(name, image)
    print_object(runtime, output)


@group.command("apply")
def apply_runtimes(
    names: Annotated[list[str] | None, typer.Argument(help="Names of bundled runtimes; default: all.")] = None,
    image: ImageSetting = "",
    kubeconfig: Kubeconfig = None,
    home: HomeChoice = None,
) -> None:
    """Create bundled runtimes in a cluster, or update existing ones."""
    with bad_input_exits():
        runtimes = [_bundled(name, image) for name in names] if names else bundled_runtimes(image)
    with cluster_errors_exit():
        cluster = cluster_for(kubeconfig, home)
        for runtime in runtimes:
            print_lines(f"clustertrainingruntime/{name_of(runtime)} {_apply(cluster, runtime)}")


def _apply(cluster: Cluster, runtime: Obj) -> str:
    """Create or update a runtime. Raises Conflict if it is changed concurrently."""
    try:
        cluster.create(runtime)
    except AlreadyExists:
        current = cluster.get(CLUSTER_TRAINING_RUNTIME, name_of(runtime))
        desired = {**current, "spec": runtime["spec"]}
        desired["metadata"] = {**current["metadata"], "labels": {**labels_of(current), **labels_of(runtime)}}
        after = cluster.update(desired)
        same = after["metadata"].get("resourceVersion") == current["metadata"].get("resourceVersion")
        return "unchanged" if same else "configured"
    return "created"


def _bundled(name: str, image: str) -> Obj:
    """Return a bundled runtime. Raises BadRequest with a suggestion and all names."""
    runtime = bundled_runtime(name, image)
    if runtime is not None:
        return runtime
    known = [name_of(one) for one in bundled_runtimes()]
    close_matches = difflib.get_close_matches(name, known, 1, 0.5)
    meant = f"did you mean {close_matches[0]!r}? " if close_matches else ""
    raise BadRequest(f"there is no bundled runtime {name!r}; {meant}known: {', '.join(known)}")


def _steps(runtime: Obj) -> list[str]:
    return [job["name"] for job in runtime["spec"]["template"]["spec"].get("replicatedJobs") or []]
