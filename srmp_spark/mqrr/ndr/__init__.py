"""Stub data of the 15 methods of RemoteRead, in both transfer syntaxes.

The layouts are those of [MS-MQRR] 6, C706 chapter 14 and [MS-RPCE] 2.2.5.

Theory of operation. A stub holds the parameters of a call in order, each aligned to its own size
from the beginning of the stub. NDR64 differs from NDR in three points only: pointers and counts of
arrays have eight bytes, enumerations have four bytes and not two, and a structure ends with the gap
that its alignment leaves. Most methods have neither pointer, array nor enumeration. Their stubs are
identical in both syntaxes, and one ``struct`` layout describes each (:mod:`.methods`). Two
parameters differ and are written out:

* QUEUE_FORMAT is a union with a text (:mod:`.queue_format_stub`), in the open calls and in the
  enlist call.
* The sections of a message are an array of structures with arrays (:mod:`.receive`). The sections
  hold nearly all bytes of a read.

The code is written by hand and not generated, because a library that decodes ``byte[]`` one element
at a time needs a thousand times as long.

Consistency is checked as [MS-MQRR] 3.1.4 demands for target level 6.0. Counts that state the same
number twice must agree, a NULL pointer has no elements, the tag of a union equals its discriminant,
and numbers are in their ranges ([MS-RPCE] 3.1.1.5.3). A stub that breaks a check raises
:class:`~srmp_spark.mqrr.errors.BadStubError`. Gaps are written as zeros and ignored when read.
Bytes after the last parameter are also ignored, because clients may put a verification trailer
there ([MS-RPCE] 2.2.2.13). A referent identifier only shows that a pointer is not NULL.
"""
