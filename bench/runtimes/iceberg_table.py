"""Makes a small Iceberg table, in the environment `data-cache`: `iceberg_table.py FOLDER ROWS`. Prints the URI of its metadata."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

FILES = 4


def main() -> None:
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    folder.mkdir(parents=True)
    catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=folder.as_uri())
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.orders", schema=rows(0, 1).schema)
    for number in range(FILES):
        table.append(rows(number * count // FILES, (number + 1) * count // FILES))
    print(table.metadata_location)


def rows(start: int, end: int) -> pa.Table:
    """Return rows whose `y` is the sum of the others."""
    numbers = random.Random(start)
    x = [[numbers.gauss(0, 1) for _ in range(start, end)] for _ in range(4)]
    columns = {f"x{index}": column for index, column in enumerate(x)}
    return pa.table({"id": pa.array(range(start, end), pa.int64()), **columns, "y": [sum(row) for row in zip(*x, strict=True)]})


if __name__ == "__main__":
    main()
