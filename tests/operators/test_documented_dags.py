"""The DAG files that the pages show are found and loaded by Airflow as they stand, with its safe mode."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.optional_packages import require_packages

from trainwright.quickstart.airflow_dag import configure

require_packages("airflow")
pytestmark = pytest.mark.medium

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
BLOCK = re.compile(r"^```python\n(.*?)^```", re.S | re.M)
DAG_FILE = re.compile(r"^(with )?(\w+ = )?DAG\(|^from \S+ import dag\b", re.M)
"""A block that makes or imports a DAG claims to be a file; others are parts of one."""
LOAD = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(sys.argv[1], safe_mode=True)
print("FOUND", json.dumps([bag.import_errors, sorted(stat.file.lstrip("/") for stat in bag.dagbag_stats if stat.dag_num)]))
"""


def shown() -> dict[str, str]:
    """The DAG files of all pages, by a name that tells where they stand."""
    found = {}
    for page in PAGES:
        for number, block in enumerate(BLOCK.findall(page.read_text("utf-8"))):
            if DAG_FILE.search(block):
                found[f"{page.relative_to(ROOT).with_suffix('').as_posix().replace('/', '_')}_{number}.py"] = block
    return found


def test_every_dag_file_of_the_pages_loads_in_safe_mode(tmp_path: Path) -> None:
    files, folder = shown(), tmp_path / "dags"
    assert {"docs_airflow_dags_0.py", "docs_airflow_assets_0.py", "docs_install_0.py"} <= set(files)
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    env = {**os.environ, **configure(tmp_path / "airflow"), "AIRFLOW__CORE__DAGS_FOLDER": str(folder), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", "-W", "ignore", "-c", LOAD, str(folder)]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    printed = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert printed, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    errors, loaded = json.loads(printed[0].removeprefix("FOUND "))
    assert errors == {}
    assert sorted(Path(name).name for name in loaded) == sorted(files)
