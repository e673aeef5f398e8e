"""WS-ReliableMessaging: ``/wsrm/QUEUE`` accepts messages of clients such as WCF, CXF and Metro."""
