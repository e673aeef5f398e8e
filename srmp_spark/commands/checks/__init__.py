"""Checks that ``doctor`` and ``serve --check`` report: one line each, with what to do.

``doctor`` asks a queue manager that runs. ``serve --check`` asks the configuration and this machine
before it runs (:mod:`.before_start`).
"""
