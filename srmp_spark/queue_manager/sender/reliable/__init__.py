"""Send by WS-ReliableMessaging: one sequence for each destination."""
