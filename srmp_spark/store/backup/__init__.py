"""Back up a data directory while its queue manager runs, and make a data directory of a backup.

A *backup* is a folder with copies of both databases, of the segments and of the subscriptions'
files, and with a *manifest* (:mod:`.manifest`). A folder without a complete manifest is no backup.
The *source* is the data directory that is backed up.
"""
