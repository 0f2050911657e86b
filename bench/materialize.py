"""How long it takes to turn a TrainJob into its objects, as bytes, for each stock runtime; and to import what does it.

Goals: 60 microseconds for torch on two nodes, 60 ms for the import. The best of several rounds counts: the rest is other work.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import orjson

from trainwright.api.objects import name_of
from trainwright.materialize import materialize
from trainwright.runtimes import bundled_runtimes

ROUNDS, CALLS = 7, 500
_IMPORT = "import time; began = time.perf_counter(); import trainwright.materialize; print(time.perf_counter() - began)"


def microseconds(trainjob: dict[str, Any], runtime: dict[str, Any]) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(CALLS):
            orjson.dumps(materialize(trainjob, runtime))
        best = min(best, (time.perf_counter() - began) / CALLS)
    return best * 1e6


def main() -> None:
    times = [
        float(subprocess.run([sys.executable, "-c", _IMPORT], capture_output=True, check=True).stdout) for _ in range(ROUNDS)
    ]
    print(f"{'import':32} {min(times) * 1e3:6.1f} ms")
    for runtime in bundled_runtimes():
        spec = {"runtimeRef": {"name": name_of(runtime)}, "trainer": {"numNodes": 2, "resourcesPerNode": {"limits": {"cpu": 4}}}}
        metadata = {"name": "demo", "namespace": "default"}
        job = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": metadata, "spec": spec}
        print(f"{name_of(runtime):32} {microseconds(job, runtime):6.1f} us")


if __name__ == "__main__":
    main()
