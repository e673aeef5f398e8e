"""The tables of ``outbox.db``, the file that holds them, and what is wrong with them."""
