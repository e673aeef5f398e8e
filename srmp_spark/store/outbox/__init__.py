"""The outbox keeps the rows that a sink staged until the peers have received them.

Begin with :mod:`.outbox`; ADR 0010 has the design. Most modules of this package need Arrow. The
sender process loads them, and it alone writes the outbox. The reader process reads the outbox for
the Delta state. The main process imports only :mod:`.limits` and :mod:`.schema`, which do not need
Arrow.

These words have one meaning in the package:

- A *stage* is one file of rows that one task of a sink wrote. A *batch* is the stages that one
  commit makes outgoing. An *application* names a sink over all of its batches.
- An *outgoing queue* holds the messages to one destination, as a *stream* (transactional) or
  *plain* (all others). A *serial* is the number of a message in its outgoing queue.
- A *part* is the rows of one batch for one outgoing queue. A *group* is up to 256 rows of a part
  that are packed together (:mod:`.tables.schema`). An *offset* is the index of a row in its part.
- A batch *counts* once its last transaction is committed. Until then its rows are no messages.
- A message *waits* until it is *finished* (its peer has confirmed it) or becomes a *dead letter*.
  Dead letters and journal copies are *moved* to the table ``moved``.
- A queue that is *held* sends nothing until an operator decides. A message *in doubt* may or may
  not have been sent.
- An *identity* tells whether a row was sent before: a hash of its key or its content, or its source
  position. A *content mark* is 8 bytes for the content of a row (:mod:`.identity`).
"""
