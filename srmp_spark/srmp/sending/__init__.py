"""The sending half of SRMP ([MC-MQSRM] 3.1.7): outgoing queues, streams, their effects."""
