"""Rows for several queues: a multiple-element format name as destination ([MS-MQMQ] 2.1.7).

``DIRECT=http://a/msmq/x,DIRECT=http://b/msmq/y`` is one row and two messages. Each message is sent
to one outgoing queue, with its own identifier, stream position and end. Each message names all
destinations in ``<DestinationMqf>`` ([MC-MQSRM] 2.2.6.14). The identity of the row counts for each
destination, as always, so each destination gets the row once.

A stage keeps its rows unchanged. The rows become messages when a batch is prepared, before anything
is numbered. So all later steps see only messages with one destination.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from srmp_spark.store.outbox.address_lists import DESTINATION_LIST, has_lists
from srmp_spark.store.outbox.columns import CanonicalDestinations
from srmp_spark.store.outbox.stage_file import Slice


def expanded(piece: Slice, addresses: CanonicalDestinations) -> Slice:
    """Return the rows of ``piece`` as messages with one destination each.

    A row with several destinations becomes several rows, and a column :data:`.DESTINATION_LIST` is
    added. Without such rows ``piece`` itself is returned. The messages are in the order (row,
    element of its list). Raises :class:`BatchError` (400) if a destination cannot be sent to.
    """
    if not has_lists(piece.columns["destination"]):
        return piece
    spelled = piece.columns["destination"].dictionary_encode()
    texts = spelled.dictionary.to_pylist()
    names = [addresses.elements(text) for text in texts]
    indices = spelled.indices.to_numpy(zero_copy_only=False)
    source = np.repeat(np.arange(piece.rows), np.array([len(each) for each in names])[indices])
    take = pa.array(source)
    columns = {name: column.take(take) for name, column in piece.columns.items()}
    columns["destination"] = pa.array(
        [name for index in indices for name in names[index]], pa.string()
    )
    lists = pa.array(
        [text if len(each) > 1 else None for text, each in zip(texts, names, strict=True)],
        pa.string(),
    )
    if lists.null_count < len(lists):
        columns[DESTINATION_LIST] = lists.take(pa.array(indices[source]))
    return piece._replace(batch=piece.batch.take(take), columns=columns, source=source)
