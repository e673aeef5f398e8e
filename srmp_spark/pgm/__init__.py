"""PGM, sans-IO (RFC 3208 as [MC-MQSRM] 2.1.3 uses it): packets and ``now`` in, packets and events out."""
