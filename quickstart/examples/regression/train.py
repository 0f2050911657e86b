"""Entry point of a folder: imports a sibling module, takes an argument, and writes results.json to the working directory."""

import argparse
import json

from model import fitted

parser = argparse.ArgumentParser()
parser.add_argument("--rows", type=int, default=100)
slope, intercept = fitted(parser.parse_args().rows)
print(f"y = {slope:.3f} x + {intercept:.3f}")
with open("results.json", "w", encoding="utf-8") as file:
    json.dump({"slope": round(slope, 3), "intercept": round(intercept, 3)}, file)
