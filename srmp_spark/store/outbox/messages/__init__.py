"""The messages that wait to be sent, and those that became dead letters."""
