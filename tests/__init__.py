"""The tests, with the tools in :mod:`tests.kit` that tests, Makefile and benchmarks share.

``tests`` is a regular package and no namespace package. An installed distribution with a ``tests``
package of its own would hide a namespace package, wherever the namespace package stands in the
path. Folders of tests have no ``__init__.py``; pytest imports their modules by bare names.
"""
