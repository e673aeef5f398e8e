"""WS-ReliableMessaging: ``/wsrm/QUEUE`` accepts messages of clients with a reliable session.

Such clients are WCF, CXF and Metro.
"""
