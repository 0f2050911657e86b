"""`trainwright runtimes`: the bundled training runtimes, and those of a cluster."""

from __future__ import annotations

import difflib
from typing import Annotated

import typer

from trainwright.api.kinds import CLUSTER_TRAINING_RUNTIME
from trainwright.api.names import FRAMEWORK_LABEL
from trainwright.api.objects import Obj, labels_of, name_of
from trainwright.cli.connection import HomeChoice, Kubeconfig, cluster_for
from trainwright.cli.output import Format, ViewFormat, print_object, print_table
from trainwright.cli.problems import BAD_INPUT, cluster_errors_exit, fail
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
    with cluster_errors_exit():
        runtimes = cluster_for(kubeconfig, home).list(CLUSTER_TRAINING_RUNTIME).items if cluster else bundled_runtimes()
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
    runtime = bundled_runtime(name)
    if runtime is None:
        names = [name_of(r) for r in bundled_runtimes()]
        near = difflib.get_close_matches(name, names, 1, 0.5)
        fail(
            f"there is no bundled runtime {name!r}; "
            + (f"did you mean {near[0]!r}? " if near else "")
            + f"known: {', '.join(names)}",
            BAD_INPUT,
        )
    print_object(runtime, output)


def _steps(runtime: Obj) -> list[str]:
    return [job["name"] for job in runtime["spec"]["template"]["spec"].get("replicatedJobs") or []]
