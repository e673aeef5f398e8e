"""The rows of queues: find them, seal them into segments, read them, delete them.

A *group* holds the rows of one commit and one queue, in the database. Groups that are old or large
are *sealed*: their rows become a *segment* of two files (:mod:`.sealing`). A *piece* is a group or
a segment. *Retention* deletes old pieces (:mod:`.retention`); rows that it has deleted are called
*trimmed*. The names ``after`` and ``to`` of two sequences always mean the rows above ``after`` up
to and including ``to``, written (after, to].
"""
