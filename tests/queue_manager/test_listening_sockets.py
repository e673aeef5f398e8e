"""The listening sockets: two that bound one port, of which one can listen."""

from __future__ import annotations

import contextlib

import pytest

from srmp_spark.errors import ConfigurationError
from srmp_spark.queue_manager.configuration.endpoint import Endpoint
from srmp_spark.queue_manager.srmp_port.sockets import bind, listen


def test_of_two_that_bound_one_port_the_second_is_told_when_it_listens() -> None:
    """SO_REUSEADDR, which a restart needs, lets both bind as long as none listens; uvloop would say nothing."""
    first, endpoint = bind(Endpoint.parse("127.0.0.1:0"), "--listen")
    second, same = bind(endpoint, "--listen")
    with contextlib.closing(first), contextlib.closing(second):
        assert same == endpoint
        listen(first, endpoint, "--listen")
        with pytest.raises(
            ConfigurationError,
            match=r"--listen 127\.0\.0\.1:\d+: Address already in use; another process listens",
        ):
            listen(second, same, "--listen")
        with pytest.raises(
            ConfigurationError,
            match="another process listens there; stop it or choose another port",
        ):
            bind(endpoint, "--api")
