"""The API client, with which Spark, the jobs and the commands call a queue manager."""
