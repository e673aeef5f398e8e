"""Explain the log events of the data directory and the Delta state."""

from __future__ import annotations

from srmp_spark.log_event import LogEvent

EVENTS: tuple[LogEvent, ...] = (
    LogEvent(
        "data_dir.narrowed",
        "Files or folders of the data directory had rights for other users. All have mode 0600 "
        "or 0700 now.",
        "Nothing, once after an update. If the line returns, find the program that changes the "
        "modes.",
        fields=("entries", "dir"),
    ),
    LogEvent(
        "data_dir.reserve_used",
        "The volume was full at the start, so the file `room.reserve` was deleted to have room.",
        "Make room: `srmp-spark queue trim NAME --received`. The file is made again by itself.",
        fields=("dir",),
    ),
    LogEvent(
        "delta.changed_by_others",
        "Another program removed rows from a table of the Delta state, or wrote to it. The queue "
        "manager writes the rows again, as far as it has them.",
        "Find the program. Only the queue manager may write these tables; others may read them.",
        fields=("table", "rows"),
    ),
    LogEvent(
        "delta.compacted",
        "Small files of a table were joined into one.",
        fields=("table", "files", "bytes"),
    ),
    LogEvent(
        "delta.damaged",
        "The Delta state cannot be published any longer, because its table or the log is "
        "damaged. Messages are accepted all the same.",
        "Follow the reason in the line and `status.state.failed`. Publishing goes on after a "
        "restart.",
    ),
    LogEvent(
        "delta.diverged",
        "A commit of a table differs from the one that the queue manager wrote: somebody put "
        "another content of the table back.",
        "Find out who put the table back. Missing rows are published again if the log has them.",
        fields=("commit",),
    ),
    LogEvent(
        "delta.failed",
        "A publication of the Delta state failed. The publisher tries again, with growing pauses.",
        "Read the reason: most often the store of `--state` cannot be reached, or is full.",
    ),
    LogEvent(
        "delta.gap",
        "Rows were deleted from the log before they were published, so `inbox` does not have them.",
        "Give `--state` a store that is reachable, and `--retention-hours` enough time for its "
        "failures.",
        fields=("queue",),
    ),
    LogEvent(
        "delta.lost",
        "Messages of dead letters or of the journal can no longer be read from the outbox, so "
        "the table has no row of them.",
        "Keep the line as the record of the loss, and check the disk.",
    ),
    LogEvent(
        "delta.missed",
        "Changes were not noticed by the fast comparison. The changes are published now, and "
        "each cycle compares everything from now on.",
        "Report the line: it is a fault of srmp-spark. Nothing is lost.",
        fields=("tables",),
    ),
    LogEvent(
        "delta.not_discarded",
        "Data files of a failed commit could not be deleted. A later clean-up deletes them.",
        fields=("table",),
    ),
    LogEvent(
        "delta.not_published_again",
        "Rows that other programs removed from `inbox` cannot be read from the log, so they are "
        "not published again.",
        'See "Damaged rows" in troubleshooting.',
        fields=("queue",),
    ),
    LogEvent(
        "delta.not_restored",
        "A data file of `inbox` was damaged, and the log cannot replace all of its rows.",
        'See "Damaged rows" in troubleshooting.',
        fields=("queue",),
    ),
    LogEvent(
        "delta.positions_not_read",
        "The positions of a table could not be read in one pass. Each position is read by "
        "itself, which takes longer.",
        fields=("table",),
    ),
    LogEvent(
        "delta.repaired",
        "Commits of a table were damaged or missing after a power loss. The commits were put "
        "back from the copies in the data directory.",
        "Nothing after a power loss. Otherwise check the disk.",
        fields=("table", "rewritten", "voided", "checkpoints_dropped"),
    ),
    LogEvent(
        "delta.rows_gone",
        "Other programs removed rows from a table, and the queue manager does not have these "
        "rows any longer.",
        "RESTORE the table to the version before they were removed, or read that version.",
        fields=("table", "rows", "epoch", "queue", "first", "last"),
    ),
    LogEvent(
        "delta.shadow_dropped",
        "The copies of a table's commits in the data directory were deleted, for the reason in "
        "the line. New copies are kept from now on.",
        fields=("folder",),
    ),
    LogEvent(
        "delta.vacuumed",
        "Old files of a table were deleted.",
        fields=("table", "files"),
    ),
    LogEvent(
        "epoch.below_a_mark",
        "A restore of an earlier version began an epoch below a consumer's mark. A new epoch "
        "begins after the mark.",
        "Compare the rows of the queue (`srmp-spark peek`) with what the consumer has. Rows "
        "between may not have been read.",
        fields=("queue", "received", "last"),
    ),
    LogEvent(
        "forward.unreadable",
        "A message in `private$/forward$` cannot be forwarded. The message became a dead letter.",
        "Read it in the table `dead_letter_queue`, and ask its sender to send it again.",
        fields=("queue", "sequence", "to", "reason"),
    ),
    LogEvent(
        "journal.callback_failed",
        "A fault of srmp-spark after a commit: one answer was not given. The messages are "
        "stored, and the sender may send again.",
        "Report the traceback.",
        fields=("position",),
    ),
    LogEvent(
        "journal.failed",
        "A write or a sync failed, or memory is ahead of the disk. The process ends, so that "
        "nothing is acknowledged that is not stored.",
        "Check the disk (`dmesg`, free space), and start again. Nothing acknowledged is lost.",
    ),
    LogEvent(
        "outbox.contents_damaged",
        "A record of what earlier rows contained is damaged. The rows still count as known; "
        "another content under their position is not noticed.",
        "Check the disk.",
        fields=("block",),
    ),
    LogEvent(
        "outbox.damaged",
        "Messages of an outgoing queue, or dead letters, cannot be read from the outbox. Their "
        "destination is on hold.",
        'See "Damaged rows" in troubleshooting; `srmp-spark streams drop` gives them up.',
        fields=("destination", "kind", "what", "rows", "reason", "serials"),
    ),
    LogEvent(
        "outbox.foreign",
        "The outbox is not the one that this data directory had last: it was copied or put back. "
        "What waits is on hold.",
        "Decide with `srmp-spark streams` what is sent: `resume` if nothing of it was sent "
        "elsewhere, else `drop`.",
        fields=("because",),
    ),
    LogEvent(
        "outbox.hashes_left_out",
        "The hashes of staged rows could not be written. The commit hashes the rows itself, and "
        "takes longer.",
        "Make room on the disk.",
        fields=("file", "reason"),
    ),
    LogEvent(
        "outbox.hashes_unusable",
        "The file with the hashes of staged rows cannot be used. The commit hashes the rows "
        "itself, and takes longer.",
        "If the line repeats, check the disk.",
        fields=("file", "row", "reason"),
    ),
    LogEvent(
        "outbox.leftovers_deleted",
        "Batches that a crash left unfinished were deleted at the start. Their queries write "
        "them again.",
        fields=("batches",),
    ),
    LogEvent(
        "outbox.respelled",
        "A destination got the spelling that this version uses, so that it has one outgoing queue.",
        "If the line says that both spellings are kept, their messages are sent separately, each "
        "in order.",
        fields=("destination", "to"),
    ),
    LogEvent(
        "outbox.stage_file_left",
        "The file of a stage could not be deleted. A later sweep deletes the file.",
        "If the line repeats, check the disk and the rights of the data directory.",
        fields=("file", "reason"),
    ),
    LogEvent(
        "outbox.stage_files_deleted",
        "Files of stages that nothing names were deleted.",
        fields=("count",),
    ),
    LogEvent(
        "restore.answered",
        "A restore of this queue manager asked whether it is alive. This process has answered, "
        "so the restore is refused.",
        "Stop this process first, if the restore is meant to replace it.",
        fields=("question", "uri"),
    ),
    LogEvent(
        "state.not_watched",
        "The queue manager cannot read the Delta state for the question of a restore. A restore "
        "would not learn that it is alive.",
        "Make the store of `--state` reachable before anybody starts a restore.",
        fields=("reason",),
    ),
    LogEvent(
        "state.unpublished",
        "This data directory was given up: a restore elsewhere has replaced it. The named rows "
        "were accepted here and are in no table.",
        "Save the rows with `srmp-spark peek` of a copy, or ask their senders to send them again.",
        fields=("queue", "epoch", "first", "last"),
    ),
    LogEvent(
        "store.set_aside",
        "A row of the store cannot be read. Its bytes stay, and everything else has started.",
        "Start the release that wrote it, and report the line. `status.set_aside` lists such rows.",
        fields=("table", "key", "reason", "further"),
    ),
)
