"""One column of the cells of an array, by Dask.

    python dask_table.py tcp://HOST:8786 /mnt/arrays/grid a
"""

import os
import sys

import dask.dataframe
from distributed import Client

scheduler, array, column = sys.argv[1:]
pinned = os.path.realpath(f"{array}/at/latest")
print("of", pinned)

with Client(scheduler) as client:
    # Of one file, "infer" makes one partition.
    table = f"{pinned}/data/table.parquet"
    cells = dask.dataframe.read_parquet(table, columns=[column], split_row_groups=True)
    print(*client.gather(client.compute([cells[column].count(), cells[column].sum()], retries=3)))
