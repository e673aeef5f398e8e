"""Sign in to remote read, and let clients sign in.

The package has security providers for :mod:`srmp_spark.mqrr.rpc.security`: NTLM version 2 for both
sides ([MS-NLMP]), and Kerberos and Negotiate for the client's side through pyspnego. This package
implements NTLM itself, because the known libraries are clients only, or have a server that accepts
no client but their own. The ciphers are those of ``cryptography`` and the standard library.
"""
