"""The DAGs are those that the tests of the newest Airflow know."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "dags"))
