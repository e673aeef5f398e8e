"""Read and write the bytes of SRMP ([MC-MQSRM] 2.2): HTTP bodies, envelopes, values."""
