"""Flags of the account that signs in at a remote machine, for jobs and commands."""

from __future__ import annotations

import argparse


def add_sign_in_flags(group: argparse._ActionsContainer) -> None:
    """Add the flags of the account and of its sign-in to ``group``."""
    group.add_argument(
        "--username", metavar="USER", help="account that signs in at the remote machine"
    )
    group.add_argument(
        "--domain",
        metavar="DOMAIN",
        help="domain of the account, or the name of the remote machine",
    )
    group.add_argument(
        "--password-file", metavar="FILE", help="file with the password of the account"
    )
    group.add_argument(
        "--auth-protocol",
        metavar="P",
        help="protocol of the sign-in: ntlm (default), kerberos or negotiate",
    )
    group.add_argument(
        "--auth-level",
        metavar="L",
        help="protection of the calls: none, connect, integrity or privacy "
        "(default privacy, on loopback none)",
    )
