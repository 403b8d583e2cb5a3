"""One column of the cells of an array, by Ray.

    python ray_table.py HOST:6379 /mnt/arrays/grid a
"""

import os
import sys

import pyarrow.parquet
import ray
from ray.data.aggregate import Count, Sum

address, array, column = sys.argv[1:]
pinned = os.path.realpath(f"{array}/at/latest")
print("of", pinned)
table = f"{pinned}/data/table.parquet"


def read(batch):
    """The column in one row group."""
    return pyarrow.parquet.ParquetFile(table).read_row_groups(batch["id"].to_pylist(), columns=[column])


ray.init(address=address)
# ray.data.read_parquet makes one task of one file: here each row group is one.
groups = pyarrow.parquet.ParquetFile(table).num_row_groups
cells = ray.data.range(groups, override_num_blocks=groups).map_batches(
    read,
    batch_size=1,
    batch_format="pyarrow",
    scheduling_strategy="SPREAD",
    max_retries=8,
    retry_exceptions=[OSError],
)
found = cells.aggregate(Count(), Sum(column))
print(found["count()"], found[f"sum({column})"])
