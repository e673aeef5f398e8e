"""The tools of this repository's tests.

This package holds simulators and their models, planted bugs, fuzzers, hostile peers, oracles and
the demo. These tools use internals of the product. The product imports none of the tools, and they
are not installed with the product. The peers for users' own tests are in :mod:`srmp_spark.testing`.
"""
