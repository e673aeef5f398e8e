"""The two tables of connection states: every pair of a state and an event, allowed and refused."""

from __future__ import annotations

import itertools

import pytest
from rpc_kit import PEER, SERVER, Server, associations

from srmp_spark.errors import LocalProtocolError
from srmp_spark.mqrr.rpc import client_states, server_states
from srmp_spark.mqrr.rpc.client_connection import ClientConnection, ClientSettings
from srmp_spark.mqrr.rpc.client_states import ClientEvent, ClientState
from srmp_spark.mqrr.rpc.pdu import PduType
from srmp_spark.mqrr.rpc.server_states import ServerEvent, ServerState


@pytest.mark.parametrize(("state", "event"), list(itertools.product(ServerState, ServerEvent)))
def test_server(state, event):
    connection = Server(SERVER, associations(), PEER)
    connection._state = state
    target = server_states.TRANSITIONS.get((state, event))
    if target is None:
        with pytest.raises(
            LocalProtocolError,
            match=f"{event.name} cannot happen to a connection that is {state.name}",
        ):
            connection._move(event)
        assert connection.state is state
    else:
        connection._move(event)
        assert connection.state is target


@pytest.mark.parametrize(("state", "event"), list(itertools.product(ClientState, ClientEvent)))
def test_client(state, event):
    connection = ClientConnection(ClientSettings())
    connection._state = state
    target = client_states.TRANSITIONS.get((state, event))
    if target is None:
        with pytest.raises(
            LocalProtocolError,
            match=f"{event.name} cannot happen to a connection that is {state.name}",
        ):
            connection._move(event)
        assert connection.state is state
    else:
        connection._move(event)
        assert connection.state is target


@pytest.mark.parametrize("table", [server_states.TRANSITIONS, client_states.TRANSITIONS])
def test_every_state_is_reached_and_nothing_leaves_the_last_one(table):
    states = type(next(iter(table))[0])
    reached = {target for (source, _), target in table.items() if source is not target}
    assert reached == set(states) - {states.ESTABLISHED}
    assert {target for (source, _), target in table.items() if source is states.CLOSED} == {
        states.CLOSED
    }


def test_pdus_that_a_server_knows_in_each_state():
    assert {
        ServerState.ESTABLISHED: {PduType.BIND},
        ServerState.NEGOTIATING_SECURITY: {PduType.ALTER_CONTEXT, PduType.AUTH3},
        ServerState.CONTEXT_NEGOTIATED: {
            PduType.ALTER_CONTEXT,
            PduType.REQUEST,
            PduType.CO_CANCEL,
            PduType.ORPHANED,
        },
        ServerState.RECV_PDU: {PduType.REQUEST, PduType.CO_CANCEL, PduType.ORPHANED},
        ServerState.CLOSED: set(),
    } == server_states.MAY_COME
