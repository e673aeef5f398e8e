"""The client of remote read without I/O ([MS-MQRR] 3.2), for every program that reads a queue.

============================  ==================================================================
:mod:`.reader_states`         the steps from a host name to calls, and what the owner does in each
:mod:`.remote_reader`         one connection: the port, the bind, calls and their answers
:mod:`.queue_calls`           the calls to an open queue, and what their answers mean
:mod:`.failures`              the errors of a step or call that failed
============================  ==================================================================

Two owners do the I/O: :mod:`srmp_spark.client.remote_queue` with a blocking socket, and
:mod:`srmp_spark.queue_manager.puller.gateway_side.connection` in an event loop.
"""
