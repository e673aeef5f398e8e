"""A simulation of WS-ReliableMessaging with both roles on a bad network.

The network loses, doubles and reorders messages. Both sides crash, and the consumer stops for a
while.
"""
