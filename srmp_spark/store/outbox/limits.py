"""Every limit of the outbox, with its reason.

The accepting process may import this module, because it imports nothing.
"""

from __future__ import annotations

STAGES_DIRECTORY = "stages"
"""Folder in the data directory with one Arrow file for each stage.

The main process writes the files.
"""

STAGE_BYTES_MAX = 4 * 1024**3
"""Largest size of one stage, in bytes. A stage has the rows of one task.

Spark's own limit for a block is 2 GB. A larger stage is refused.
"""

BATCH_ROWS_MAX = 2**32 - 1
"""Largest number of rows in one commit, because a row's number has 32 bits.

Beyond ``ROWS_AT_ONCE`` rows, what a commit must know of each row is kept in files. A larger batch
is refused.
"""

STAGE_ROWS_MAX = BATCH_ROWS_MAX
"""Largest number of rows in one stage: as many as the largest batch has."""

RECORD_BATCH_ROWS_MAX = 4_000_000
"""Largest number of rows in one Arrow record batch.

The size in bytes does not limit the rows if a column has no buffers. A larger record batch is
refused.
"""

ROWS_AT_ONCE = 1_000_000
"""Rows whose identities or places in the order of sending are worked out at once.

This takes one step of the outbox's thread and about 60 MB. A batch with more rows is *large*: the
numbers about each row are kept in files below ``sorting``.
"""

FILED_ROW_BYTES = 80
"""Largest number of bytes for each row in the files below ``sorting``.

The columns of ``orderBy`` are not included.
"""

ORDER_BYTES = 64 * 1024 * 1024
"""Bytes of the columns of ``orderBy`` that are sorted at once.

More bytes become several sorted files, which are merged.
"""

MERGE_BYTES = 1024 * 1024
"""Bytes of each sorted file that are in memory during the merge.

A batch of a hundred million rows needs 100 MB for the merge.
"""

PART_ROWS_MAX = 2**24
"""Largest number of rows in one part of a batch.

A row's offset has 24 bits (``schema.py``). Further rows of the same queue become another part.
"""

BATCH_STAGES_MAX = 10_000
"""Largest number of stages in one commit, which are the tasks of one Spark stage.

A commit with more stages is refused.
"""

BATCH_DESTINATIONS_MAX = 10_000
"""Largest number of destinations in one commit: as many as the sending engine serves.

A batch with more destinations is refused.
"""

RECORD_BATCH_BYTES_MAX = 64 * 1024 * 1024
"""Largest size of one Arrow record batch, in bytes, because it is read as a whole.

A larger record batch is refused.
"""

CHUNK_ROWS = 4_096
CHUNK_BYTES = 8 * 1024 * 1024
"""Bytes of a *chunk*: rows that are worked on at once and stored in one transaction.

CHUNK_ROWS is the limit of its rows. With a thousand bytes a row, a chunk is sixteen groups.
"""

GROUP_ROWS = 256
GROUP_BYTES = 1024 * 1024
"""Bytes of the bodies in a group: rows that are packed together.

GROUP_ROWS is the limit of its rows. The sending engine reads this many at once (``READ_AHEAD``).
"""

BUCKET_BYTES = CHUNK_BYTES
"""Bytes of rows that are put in order at once.

The rows of a larger batch are first distributed to files of this size.
"""

BUCKETS_MAX = 400
"""Largest number of files that are open at once while a batch is put in order.

Beyond 400 × 8 MB the files become larger.
"""

APPLICATION_LENGTH_MAX = 200
"""Largest length of the names of an application and of a batch, in characters.

People read these names. Longer names are refused.
"""

KEY_BYTES_MAX = 1_024
"""Largest length of a ``key``, in bytes, because it is stored with the message.

A row with a longer key is refused.
"""

LABEL_LENGTH_MAX = 249
"""Largest length of a label, in UTF-16 units.

A row with a longer label is refused. MQ_MAX_MSG_LABEL_LEN is 250 with its final NUL ([MS-MQMQ]
2.2.19.1).
"""

ADDRESS_LENGTH_MAX = 1_024
"""Largest length of a destination, response queue or admin queue, in characters.

Each of them is written to the envelope, which has 64 KB. A row with a longer address is refused.
"""

LIST_LENGTH_MAX = 8_192
"""Largest length of a multiple-element format name, in characters.

An envelope of 64 KB may contain three such lists. A row with a longer list is refused.
"""

CORRELATION_BYTES = 20
"""Length of a correlation identifier, in bytes ([MC-MQSRM] 2.2.6.5). No other length is allowed."""

APP_SPECIFIC_MAX = 2**32 - 1
BODY_TYPE_MAX = 2**32 - 1
"""Largest value of ``body_type``. APP_SPECIFIC_MAX is that of ``app_specific``.

In MSMQ each has 32 bits ([MS-MQMQ] 2.3.1.1). A row with a larger value is refused.
"""

STAGE_HOURS = 48
"""Age in hours at which an uncommitted stage is deleted.

A driver that is gone for two days does not return with the same task.
"""

STAGE_FILE_HOURS = 1
"""Hours without a write after which an unregistered file in the folder of stages is deleted.

A crash left such a file.
"""

IDENTITY_DAYS = 30
"""Days for which a key, position or digest is kept after its commit (docs/GUARANTEES.md)."""

DEAD_LETTER_DAYS = 30
"""Days for which a dead letter or a journal copy is kept.

With ``--state`` the Delta tables keep it for ever.
"""

DISK_RESERVE_BYTES = 256 * 1024 * 1024
"""Bytes that a commit leaves free on the disk. A commit that would use them is refused.

The engine's own writes must go on, and a full disk ends the process.
"""

DISK_RESERVE_SHARE = 4
"""Divisor of the size of a small volume: a commit leaves this share of the volume free.

The share is a quarter, and counts on volumes that are smaller than four times
``DISK_RESERVE_BYTES``. The WAL grows within this share.
"""

LOCK_WAIT_S = 15.0
"""Longest time in seconds that a new sender process waits for the earlier one to end.

The earlier process may be in its last sync.
"""

CHECKPOINT_BYTES = 32 * 1024 * 1024
"""Bytes in the WAL after which it is copied into the database.

Four chunks are copied at once, so a page that is written twice is copied once.
"""

CHECKPOINT_REST_BYTES = 16 * 1024 * 1024
"""Bytes left to copy at which the thread of the outbox copies the rest itself.

The WAL can then begin anew. Two chunks take 20 ms.
"""

WAL_BYTES_MAX = 128 * 1024 * 1024
"""Length of the WAL, in bytes, at which writing waits until the WAL is copied.

The disk has room for this length (:data:`DISK_RESERVE_BYTES`).
"""

SWEEP_ROWS = 4_096
"""Largest number of rows that one step of the housekeeping deletes.

Other writers wait for the step.
"""
