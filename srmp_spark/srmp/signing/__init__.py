"""Check the XML signature of a message."""
