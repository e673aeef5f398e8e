"""Tools for tests of PGM: a simulated multicast group, and peers for interoperability.

The simulation runs a real source and real receivers on a bad network. An oracle judges the packets
without trusting either side.
"""
