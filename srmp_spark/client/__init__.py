"""The API client: what Spark, the jobs and the command line use to talk to a queue manager."""
