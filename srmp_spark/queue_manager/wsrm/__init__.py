"""WS-ReliableMessaging: ``/wsrm/QUEUE`` accepts messages of WCF, CXF, Metro and others."""
