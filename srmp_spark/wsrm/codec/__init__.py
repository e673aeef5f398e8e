"""Read and write the messages of WS-ReliableMessaging."""
