"""Send the receipts that a queue manager owes to the senders of its messages.

Words of this package. A *delivery receipt* states that a message is a row of its queue, a *stream
receipt* up to which position a stream is stored, and a *commitment receipt* or *final stream
receipt* what became of a row ([MC-MQSRM] 2.2.5.4 to 2.2.5.6). A *peer* is the address from which a
message was received. :mod:`.url_policy` *judges* a URL: it decides whether a receipt may be sent
there. A URL that may not be called is *blocked*. :mod:`.decision_receipts` explains *lanes*.
"""
