"""SRMP without I/O ([MC-MQSRM]): takes bytes and ``now``; returns messages, verdicts, effects."""
