"""The receiving half of SRMP ([MC-MQSRM] 3.1.5): verdicts, streams, history, receipts."""
