"""The source of reliable sequences: messages out, acknowledgements in, flow control."""
