"""No row is lost between a queue and a query, however people use Spark: random schedules, judged by a model."""
