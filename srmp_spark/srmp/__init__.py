"""SRMP, sans-IO ([MC-MQSRM]): bytes and ``now`` in, messages, verdicts and effects out."""
