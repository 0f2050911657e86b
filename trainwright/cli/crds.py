"""`trainwright crds`: prints the CustomResourceDefinitions, for a cluster that does not have them."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from trainwright.api.admission.crds import custom_resource_definitions
from trainwright.cli.output import Format
from trainwright.text.yaml_writer import to_yaml_documents


def register(app: typer.Typer) -> None:
    app.command("crds")(crds_command)


def crds_command(
    output: Annotated[Format, typer.Option("-o", "--output", help="Documents in YAML, or one List in JSON.")] = Format.yaml,
) -> None:
    """Print the CustomResourceDefinitions of TrainJob, its runtimes and JobSet, for `kubectl apply --server-side -f -`."""
    definitions = custom_resource_definitions()
    if output is Format.json:
        sys.stdout.write(json.dumps({"apiVersion": "v1", "kind": "List", "items": definitions}, indent=2) + "\n")
    else:
        sys.stdout.write(to_yaml_documents(definitions))
