"""The tests, and in :mod:`tests.kit` the tools that they, the Makefile and the benchmarks share.

A package of its own and no namespace: an installed distribution that ships a ``tests`` of its own
would hide a namespace, wherever it stands in the path. Folders of tests have no ``__init__.py``;
pytest imports their modules by bare names.
"""
