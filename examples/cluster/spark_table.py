"""SQL on the cells of one array, by Spark.

    spark-submit --master spark://HOST:7077 --properties-file spark-defaults.conf \\
        spark_table.py /mnt/arrays/grid 'SELECT sum(a) FROM cells'
"""

import os
import sys

from pyspark.sql import SparkSession

array, query = sys.argv[1:]
pinned = os.path.realpath(f"{array}/at/latest")
print("of", pinned)

spark = SparkSession.builder.getOrCreate()
spark.read.parquet(f"file://{pinned}/data/table.parquet").createOrReplaceTempView("cells")
for row in spark.sql(query).collect():
    print(*row)
spark.stop()
