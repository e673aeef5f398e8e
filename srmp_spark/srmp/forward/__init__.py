"""Forward messages that are for another machine, and redirect URLs ([MC-MQSRM] 3.1.5.1.3)."""
