"""Every walker by its name."""

from __future__ import annotations

from srmp_spark.testing.attack.walkers.api import ApiWalker
from srmp_spark.testing.attack.walkers.destination import DestinationWalker
from srmp_spark.testing.attack.walkers.multicast import MulticastWalker
from srmp_spark.testing.attack.walkers.playing import Walker
from srmp_spark.testing.attack.walkers.remote_server import RemoteServerWalker
from srmp_spark.testing.attack.walkers.rpc import RpcWalker
from srmp_spark.testing.attack.walkers.srmp import SrmpWalker
from srmp_spark.testing.attack.walkers.stages import StageWalker
from srmp_spark.testing.attack.walkers.wsrm import WsrmWalker

_EVERY: tuple[Walker, ...] = (
    SrmpWalker(),
    WsrmWalker(),
    ApiWalker(),
    RpcWalker("rpc"),
    RpcWalker("mapper"),
    MulticastWalker(),
    RemoteServerWalker(),
    StageWalker(),
    DestinationWalker(),
)
WALKERS: dict[str, Walker] = {walker.port: walker for walker in _EVERY}
"""By the name for ``--port``."""
