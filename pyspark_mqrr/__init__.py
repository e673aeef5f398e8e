"""The place of ``format("mqrr")`` (MSMQ remote read); the format itself comes with the remote read protocol.

Spark looks for one ``DefaultSource`` a module. None is defined yet, so Spark skips this module without a warning.
"""
