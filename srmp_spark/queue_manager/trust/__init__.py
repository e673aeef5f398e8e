"""Decide whom to believe: TLS, tokens, accounts, signers, and who may write to a queue."""
