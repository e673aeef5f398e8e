"""A simulation of WS-ReliableMessaging with both roles on a bad network.

The network loses, doubles and reorders messages. Both sides crash, and the consumer stops for a
while. The *source* sends, the *destination* receives and acknowledges; both are the classes of
srmp-spark. An *anonymous* source has no address and gets acknowledgements only in answers.
*BufferRemaining* is the number of messages for which the destination has room. A source that was
sent 0 *polls*: it asks for an acknowledgement (AckRequested) until there is room. *Marks* count how
often each event happened in a run. Times are in seconds of the simulated clock.
"""
