"""From write traces to the size of a battery: the analysis of ``perdura plan trace``, for Python.

``analyze`` counts a trace that fits one process: a pyarrow Table, a dict of arrays (numpy, pyarrow,
lists), or anything that pyarrow makes a table of. ``python -m perdura.plan`` and
``perdura.plan.spark.analyze`` count Parquet of any size on Apache Spark. All give the same figures,
to the last digit.
"""

from perdura.plan.columns import Columns
from perdura.plan.local import analyze

__all__ = ["Columns", "analyze"]
