"""WS-ReliableMessaging at the SRMP port: ``/wsrm/QUEUE`` takes what WCF, CXF and Metro clients with a reliable session send."""
