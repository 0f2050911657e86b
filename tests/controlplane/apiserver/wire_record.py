"""record.py --kubeconfig FILE [--twice] [SLUG ...]: replays cases/*.yaml and writes recorded/<slug>.yaml with `expected` per step."""

import argparse
import concurrent.futures
import glob
import json
import os
import re
import sys

import wire_exchanges as wire


def record(case, server):
    answers, order = wire.replay(case, server)
    shown = json.dumps(answers)
    order = [rv for rv in order if re.search(rf"\b{rv}\b", shown)]
    out = dict(
        case, steps=[dict(s, expected=a) if a is not None else dict(s) for s, a in zip(case["steps"], answers, strict=False)]
    )
    out["rv_order"] = order
    return out


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--kubeconfig", required=True)
    p.add_argument("--cases", default=here + "/cases")
    p.add_argument("--out", default=here + "/recorded")
    p.add_argument("--twice", action="store_true", help="record each case twice and report differences")
    p.add_argument("--missing", action="store_true", help="only cases without a recording")
    p.add_argument("--jobs", type=int, default=4)
    p.add_argument("slugs", nargs="*")
    a = p.parse_args()
    server = wire.Server(a.kubeconfig)

    def one(path):
        slug = os.path.basename(path)[:-5]
        try:
            first = record(wire.load(path), server)
            if a.twice:
                from compare import differences

                d = differences(first, record(wire.load(path), server))
                if d:
                    return "\n   ".join(["UNSTABLE " + slug, *d[:8]])
            wire.dump(first, f"{a.out}/{slug}.yaml")
        except Exception as e:
            return f"FAILED {slug} {type(e).__name__} {str(e)[:300]}"

    paths = [f for f in sorted(glob.glob(a.cases + "/*.yaml")) if not a.slugs or os.path.basename(f)[:-5] in a.slugs]
    if a.missing:
        paths = [f for f in paths if not os.path.exists(f"{a.out}/{os.path.basename(f)}")]
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        bad = [x for x in pool.map(one, paths) if x]
    print(*bad, f"{len(paths)} cases, {len(bad)} bad", sep="\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
