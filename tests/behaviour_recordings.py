"""Recorded scenarios, run against the embedded control plane. As a program: all of them, as a table of areas (`make goldens`).

The runner and the comparison are those with which the recordings were made.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml
from recorders import compare_behaviour as compare
from recorders import run_behaviour as run
from recording_archives import recordings_of
from support.cluster_under_test import embedded

from trainwright.embedded.options import FeatureGates

QUIET_SECONDS = 0.6
"""Nothing has changed for so long: settled. Longer than the Job controller lets pod events gather."""
ORDERED_BY_TIMES = {"job-scale-parallelism-down-ready"}
"""What happens in them depends on the order of times in whole seconds: their steps must not fall into the same one."""
WORKERS = 6
ON_PURPOSE = {"trainjob-patch-affinity-suspended"}
"""A change that can never be applied is refused at once: docs/reference/differences.md. Shown, but no failure."""


def differences(recordings: Path, names: list[str]) -> dict[str, list[str]]:
    """What differs from the recordings, for each of these scenarios."""
    cases = [recordings / "cases" / name for name in names]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with (
            embedded(folder, node=False, gates=FeatureGates(TrainJobStatus=False)) as kubeconfig,
            ThreadPoolExecutor(WORKERS) as pool,
        ):
            api = run.Api(str(kubeconfig))
            seen = list(pool.map(lambda case: run.Run(api, str(case), _quiet_seconds(case.name)).go()[0], cases))
        found = {}
        for case, observed in zip(cases, seen, strict=True):
            run.write(str(folder / "observed.yaml"), observed)  # written and read: what YAML cannot tell apart is the same
            found[case.name] = compare.compare(_read(case / "observed.yaml"), _read(folder / "observed.yaml"))
    return found


def _quiet_seconds(name: str) -> float:
    return 2 * QUIET_SECONDS if name in ORDERED_BY_TIMES else QUIET_SECONDS


def main() -> int:
    """Run the scenarios whose area or name begins with one of the arguments (all without any). 1 when something differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wanted", nargs="*", help="beginnings of areas or names")
    arguments = parser.parse_args()
    recordings = recordings_of("behaviour")
    areas = {}
    for case in sorted((recordings / "cases").iterdir()):
        scenario, begins = _read(case / "scenario.yaml"), tuple(arguments.wanted)
        if not scenario.get("gates") and (not begins or scenario["area"].startswith(begins) or case.name.startswith(begins)):
            areas[case.name] = str(scenario["area"])
    found = differences(recordings, list(areas))
    print("Scenarios of JobSet's alpha gates are left out: the embedded cluster refuses their fields, as a stock cluster does.")
    _tell(found, areas)
    return 1 if any(wrong for name, wrong in found.items() if name not in ON_PURPOSE) else 0


def _tell(found: dict[str, list[str]], areas: dict[str, str]) -> None:
    for name, wrong in found.items():
        if wrong:
            print(f"{name}: {len(wrong)} differences")
            print("".join(f"    {line}\n" for line in wrong), end="")
    total = Counter(areas[name] for name in found)
    same = Counter(areas[name] for name, wrong in found.items() if not wrong)
    print(f"{'area':<24} {'same':>6} {'of':>5}")
    for area in sorted(total):
        print(f"{area:<24} {same[area]:>6} {total[area]:>5}")
    print(f"{'all':<24} {sum(same.values()):>6} {sum(total.values()):>5}")


def _read(path: Path) -> Any:
    return yaml.load(path.read_text("utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))


if __name__ == "__main__":
    sys.exit(main())
