"""The analysis of ``perdura plan trace`` for Python: how much is written in the worst interval.

``analyze`` counts a trace that fits one process: a pyarrow Table, a dict of arrays (numpy, pyarrow,
lists), or an object that pyarrow can make a table of. ``python -m perdura.plan`` and
``perdura.plan.spark.analyze`` count Parquet files of any size on Apache Spark. All of them give the
same figures, to the last digit.
"""

try:
    import pyarrow  # noqa: F401
except ImportError as error:
    raise ImportError(f"{error}; install it: pip install 'perdura[plan]'") from error

from perdura.plan.columns import Columns
from perdura.plan.frames import frames
from perdura.plan.local import analyze

__all__ = ["Columns", "analyze", "frames"]
