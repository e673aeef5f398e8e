"""Signing in to remote read, and letting others sign in: security providers for :mod:`srmp_spark.mqrr.rpc.security`.

NTLM version 2 alone, both sides ([MS-NLMP]). Libraries for it are clients, or their server takes no client but their own, so
this is ours; its ciphers are of ``cryptography`` and the standard library. Kerberos is not here.
"""
