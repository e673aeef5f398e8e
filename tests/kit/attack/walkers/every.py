"""Lists every walker by its name."""

from __future__ import annotations

from tests.kit.attack.walkers.api import ApiWalker
from tests.kit.attack.walkers.destination import DestinationWalker
from tests.kit.attack.walkers.multicast import MulticastWalker
from tests.kit.attack.walkers.playing import Walker
from tests.kit.attack.walkers.remote_server import RemoteServerWalker
from tests.kit.attack.walkers.rpc import RpcWalker
from tests.kit.attack.walkers.srmp import SrmpWalker
from tests.kit.attack.walkers.stages import StageWalker
from tests.kit.attack.walkers.wsrm import WsrmWalker

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
"""The walkers by their name for ``--port``."""
