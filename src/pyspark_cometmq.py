"""Where Spark looks: it imports every module named `pyspark_*` and takes its `DefaultSource`.

Nothing else may be imported here: every user of this environment loads it, in every lookup.
"""

from cometmq.spark.data_source import RocketMQSource as DefaultSource

__all__ = ["DefaultSource"]
