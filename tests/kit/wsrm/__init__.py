"""WS-ReliableMessaging simulated: both roles, a network that loses, doubles and reorders, crashes, a consumer that stops."""
