"""The commands of ``srmp-spark``: each module adds its parsers in ``add_commands`` and does its imports when it runs."""
