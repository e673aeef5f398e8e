"""Every limit of the outbox, with its reason. The accepting process may import this module: it loads nothing."""

from __future__ import annotations

STAGES_DIRECTORY = "stages"
"""Below the data directory: one Arrow file per stage, written by the main process."""

STAGE_BYTES_MAX = 4 * 1024**3
"""Bytes of one stage, which is one task's rows: Spark's own limit of a block is 2 GB."""

BATCH_ROWS_MAX = 2**32 - 1
"""Rows of one commit: a row's number has 32 bits. What a commit needs for each row lies in files beyond ROWS_AT_ONCE rows."""

STAGE_ROWS_MAX = BATCH_ROWS_MAX
"""Rows of one stage: those of the largest batch."""

RECORD_BATCH_ROWS_MAX = 4_000_000
"""Rows of one Arrow record batch: its bytes say nothing of them where a column has no buffers."""

ROWS_AT_ONCE = 1_000_000
"""Rows whose identities or places are worked out at once, in one step of the outbox's thread and about 60 MB. The numbers about
each row of a larger batch lie in files below ``sorting``."""

FILED_ROW_BYTES = 80
"""Bytes in those files for each row, beside the columns of ``orderBy``, at most."""

ORDER_BYTES = 64 * 1024 * 1024
"""Bytes of the columns of ``orderBy`` that are put in order at once; more become several sorted files, which are merged."""

MERGE_BYTES = 1024 * 1024
"""Bytes of each sorted file that are in memory while they are merged: 100 MB for a batch of a hundred million rows."""

PART_ROWS_MAX = 2**24
"""Rows of one part of a batch: the offset of a row has 24 bits (schema.py). A queue's rows beyond it are another part."""

BATCH_STAGES_MAX = 10_000
"""Stages of one commit, which are the tasks of one Spark stage."""

BATCH_DESTINATIONS_MAX = 10_000
"""Destinations of one commit: as many as the sending engine serves."""

RECORD_BATCH_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of one Arrow record batch: it is read as a whole."""

CHUNK_ROWS = 4_096
CHUNK_BYTES = 8 * 1024 * 1024
"""Rows and bytes that are worked on at once and stored in one transaction. Sixteen groups of a thousand bytes a row."""

GROUP_ROWS = 256
GROUP_BYTES = 1024 * 1024
"""Rows and bytes of bodies that are packed together: what the sending engine reads at once (READ_AHEAD)."""

BUCKET_BYTES = CHUNK_BYTES
"""Bytes that are put in order at once; a batch that is larger is first dealt out to files of this size."""

BUCKETS_MAX = 400
"""Files open at once while a batch is put in order; beyond 400 × 8 MB the buckets become larger."""

APPLICATION_LENGTH_MAX = 200
"""Characters of an application's name and of a batch: people read them."""

KEY_BYTES_MAX = 1_024
"""Bytes of a ``key``: it is stored with the message."""

LABEL_LENGTH_MAX = 249
"""UTF-16 units of a label: MQ_MAX_MSG_LABEL_LEN is 250 with its final NUL ([MS-MQMQ] 2.2.19.1)."""

ADDRESS_LENGTH_MAX = 1_024
"""Characters of a destination, response queue or admin queue: each stands in the envelope of 64 KB."""

LIST_LENGTH_MAX = 8_192
"""Characters of a multiple-element format name: three of them may stand in the envelope of 64 KB."""

CORRELATION_BYTES = 20
"""Bytes of a correlation identifier, [MC-MQSRM] 2.2.6.5; there is no shorter one."""

APP_SPECIFIC_MAX = 2**32 - 1
BODY_TYPE_MAX = 2**32 - 1
"""Both have 32 bits in MSMQ ([MS-MQMQ] 2.3.1.1)."""

STAGE_HOURS = 48
"""An uncommitted stage is dropped after this: a driver that is gone for two days does not come back with the same task."""

STAGE_FILE_HOURS = 1
"""A file in the folder that nobody registered is deleted when it was not written for so long."""

IDENTITY_DAYS = 30
"""How long a key, position or digest is remembered after its commit (DESIGN.md, promise 5)."""

DEAD_LETTER_DAYS = 30
"""How long a dead letter or a journal copy is kept; with ``--state`` the Delta tables keep it for ever."""

DISK_RESERVE_BYTES = 256 * 1024 * 1024
"""What a commit leaves free on the disk: the engine's own writes must go on, and a full disk ends the process."""

DISK_RESERVE_SHARE = 4
"""On a volume smaller than four times that, a commit leaves this part of it: a quarter. The log has its length within that."""

LOCK_WAIT_S = 15.0
"""A new sender process waits so long for the end of the one before it, which may be in its last sync."""

CHECKPOINT_BYTES = 32 * 1024 * 1024
"""The WAL is copied into the database after so many bytes: four chunks, so that a page written twice is copied once."""

CHECKPOINT_REST_BYTES = 16 * 1024 * 1024
"""What is left to copy when the thread of the outbox copies it itself, so that the WAL is begun anew: two chunks, 20 ms."""

WAL_BYTES_MAX = 128 * 1024 * 1024
"""Before the WAL becomes longer, writing waits until it is copied: the disk has room for it
(:data:`DISK_RESERVE_BYTES`)."""

SWEEP_ROWS = 4_096
"""What one step of the housekeeping deletes at most: other writers wait for it."""
