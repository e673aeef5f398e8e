"""Stub data of the 15 methods of RemoteRead, in both transfer syntaxes ([MS-MQRR] 6; C706 chapter 14; [MS-RPCE] 2.2.5).

Theory of operation. A stub is the parameters of a call one behind the other, each aligned to its own size from the beginning of
the stub. NDR64 differs from NDR in three things only: pointers and counts of arrays have eight bytes, enumerations have four
and not two, and a structure ends with the gap that its alignment leaves. Most methods have neither pointer, array nor
enumeration: their stubs are the same in both, and one ``struct`` layout each (:mod:`.methods`). Two shapes differ and are
written out:

* QUEUE_FORMAT, a union with a text (:mod:`.queue_format_stub`): opens, and the enlist call
* the sections of a message, an array of structures with arrays (:mod:`.receive`): where all the bytes of a read are

Written by hand and not generated, because a library that walks ``byte[]`` one element at a time needs a thousand times as long.

Consistency is checked as [MS-MQRR] 3.1.4 demands, target level 6.0: counts that say the same thing twice agree, a NULL pointer
has no elements, a union's tag is its discriminant, ranges hold ([MS-RPCE] 3.1.1.5.3). What breaks one is a
:class:`~srmp_spark.mqrr.errors.BadStubError`. Gaps are written as zeros and ignored; so are bytes behind the last parameter,
where clients may put a verification trailer ([MS-RPCE] 2.2.2.13). Referent identifiers mean nothing but "not NULL".
"""
