"""The tools of this repository's tests.

Simulators and their models, planted bugs, fuzzers, hostile peers, oracles and the demo are here.
They see inside the product, which imports nothing of them, and are not installed with it. Peers
that users test their own pipelines with are :mod:`srmp_spark.testing`.
"""
