"""Tools for tests of PGM: a simulated multicast group, and peers for interoperability.

The simulation runs a real source and real receivers on a bad network. An oracle judges the packets
without trusting either side. *Our* program is the source or receiver of srmp-spark; *their* program
is OpenPGM's ``pgmpeer``.

Words of RFC 3208: a *source* sends the *APDUs* of an application in numbered packets (*ODATA*) and
announces itself with *SPMs*. Numbers go from *trail* to *lead*, the window that can be repaired. A
*receiver* requests a lost packet with a *NAK*; the source confirms it with an *NCF* and repeats the
packet as *RDATA*. A *TSI* identifies a session. Numbers have 32 bits on the wire and are
*unwrapped* in the programs. Times are in seconds, in the simulation of its clock.
"""
