"""A program that writes by Spark Connect: a batch with a rejected row, a stream, `deduplicated`.

python connect_write.py NAMESRV TOPIC COPY FOLDER
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from cometmq.spark import deduplicated


def main(namesrv: str, topic: str, copy: str, folder: str) -> None:
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    assert "connect" in type(spark).__module__
    where = {"namesrv": namesrv, "topic": topic}
    bodies = "if(id = 7, '', cast(id as string)) AS body"
    frame = spark.range(0, 500, numPartitions=2).selectExpr(bodies, "concat('k', id) AS keys")
    sink = frame.write.format("rocketmq").mode("append").options(**where)
    sink.option("rejectedPath", f"{folder}/rejected").save()
    sent = spark.read.format("rocketmq").options(**where, includeProperties="true").load()
    assert sent.count() == deduplicated(sent).count() == 499
    assert spark.read.parquet(f"{folder}/rejected").collect()[0]["keys"] == "k7"

    columns = "topic,broker,queue_id,queue_offset,body,keys"
    read = spark.readStream.format("rocketmq").options(**where, columns=columns)
    stream = read.option("startingOffsets", "earliest").load()
    query = (
        stream.writeStream.format("rocketmq")
        .options(namesrv=namesrv, topic=copy)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    options = {"namesrv": namesrv, "topic": copy, "includeProperties": "true"}
    copied = deduplicated(spark.read.format("rocketmq").options(**options).load())
    assert copied.selectExpr("sum(cast(cast(body as string) as int))").collect()[0][0] == 124_743
    origins = copied.selectExpr("count(distinct properties.SPARK_ORIGIN)").collect()[0][0]
    assert origins == 499
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
