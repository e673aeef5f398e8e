"""The options and columns of the source and of the sink, and what is refused about them."""
