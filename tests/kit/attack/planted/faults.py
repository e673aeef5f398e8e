"""The faults that two reviews of version 0.1 proved, by the reviews' numbers.

The list holds the faults that requests over a network show. Each fault was repaired. Each fault has
planted bugs that name it (:attr:`tests.kit.attack.planted.bugs.Bug.faults`), which show that the
attack finds it. Missing numbers are faults of files, documents and builds.
"""

from __future__ import annotations

FAULTS: dict[int, str] = {
    1: "A sequence of one version of WS-ReliableMessaging is closed by a request of "
    "another version: an exception for each.",
    2: "An endpoint reference is stored in a form that its own reader refuses at the next start.",
    3: "A request of WS-ReliableMessaging with many prefixes costs one regular expression "
    "over its body for each prefix.",
    4: "Connections of the API that say nothing are accepted without end and never closed.",
    5: "A token for one queue reads identifiers of sequences of all queues in the status.",
    6: "Connections of remote read before sign-in hold megabytes of fragments each, and "
    "2,000 of them keep others out.",
    7: "A stage of Arrow bytes ends the sender process that reads it, again at each attempt.",
    8: "Every call of the API, also for a restricted token, may have a body of 64 MiB "
    "with any number of values.",
    9: "One address takes all sequences of a queue.",
    15: "Of a remote message in two sections the first alone is stored.",
    16: "Cancels of calls that never were are handled without end in one turn of the loop.",
    17: "A remote server's response may have empty fragments without end.",
    18: "A reader that takes no answers lets messages be read for it without end.",
    19: "What one client's sequence holds after a gap counts against the room of all clients.",
    20: "Remote messages that cannot be read, at the head of a queue, hide the messages "
    "after them.",
    21: "A remote cursor that shows the same messages again and again is walked without end.",
}
"""Descriptions of the faults, by number."""
