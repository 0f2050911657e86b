"""`trainwright crds`: prints the CustomResourceDefinitions, for a cluster that does not have them."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
import yaml

from trainwright.api.admission.crds import custom_resource_definitions
from trainwright.cli.output import Format


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
        sys.stdout.write(yaml.dump_all(definitions, Dumper=_Plain, sort_keys=False, width=10**9))


class _Plain(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes shared parts in full: kubectl rejects documents with many YAML aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True
