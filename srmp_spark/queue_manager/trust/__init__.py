"""Decide whom to trust: TLS, API tokens, accounts, signers, and who may write to a queue."""
