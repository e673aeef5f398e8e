"""The data directory: an SQLite database, synced before any 200, and sealed segments.

These words have one meaning in the package:

- The *log* of a queue is all of its rows, by sequence. (SQLite's log is always named WAL.)
- A *sequence* is the number of a row in its queue. A *hole* is a range of sequences that no longer
  have a row: their rows were purged, given up or lost (:mod:`.tables.holes`).
- An *epoch* is one history of sequences, named by a random text (:mod:`.directory`).
- A *group* holds the rows of one commit and one queue. A *segment* holds some thousand rows that
  were *sealed*: written as two files (:mod:`.stored_rows`).
- The *position* of a database is the number of its last commit, counted from 1. Its *fence* is the
  number of the process that owns it; each new owner has a higher one.
- The *mark* of a consumer is the sequence up to which it has received every row. Rows that it
  received beyond the mark, for example by priority, are kept separately (:mod:`.tables.marks`).
- A row that cannot be read is *set aside*: it is reported, and it stops nothing else
  (:mod:`.database.set_aside`).
- A *turn* is one iteration of the event loop of the main process, which accepts messages.
"""
