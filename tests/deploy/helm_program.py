"""Runs Helm's own library, in an environment that has it: a request as JSON on standard input, the answer on standard output.

Requests: {"do": "render", "chart": ..., "values": ...}, {"do": "lint", "chart": ...}, and
{"do": "install" | "upgrade" | "uninstall", "chart": ..., "values": ..., "kubeconfig": ...}.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import helm_python as helm

NAME, NAMESPACE = "trainwright", "trainwright-system"


def answer(request: dict[str, Any]) -> Any:
    chart, values = request["chart"], request.get("values") or {}
    if request["do"] == "lint":
        return helm.lint(chart)
    if request["do"] == "render":
        with helm.Chart.load(chart) as loaded:
            loaded.validate_schema(loaded.merge_values(values))
            return loaded.render(values, name=NAME, namespace=NAMESPACE)
    with helm.Config(namespace=NAMESPACE, kubeconfig_path=request["kubeconfig"]) as config:
        if request["do"] == "uninstall":
            return config.uninstall(NAME)
        act = config.install if request["do"] == "install" else config.upgrade
        return act(chart, NAME, values)


if __name__ == "__main__":
    try:
        print(json.dumps({"answer": answer(json.load(sys.stdin))}, default=str))
    except helm.HelmError as error:
        print(json.dumps({"error": str(error)}))
