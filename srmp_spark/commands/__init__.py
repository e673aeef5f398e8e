"""The commands of ``srmp-spark``.

Each module adds its parsers in ``add_commands``. A module imports what a command needs when the
command runs, so that ``--help`` answers at once.
"""
