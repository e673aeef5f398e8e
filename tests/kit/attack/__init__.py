"""A fuzzer of the running process: it attacks every port of a real ``serve``.

A *walk* is a list of steps that follows from a seed. Its steps are requests of one protocol, in an
order that no good client uses, over several connections and addresses. A *walker* plans walks and
plays them at one port (:mod:`.walkers`). All walkers run at the same time.

A *witness* is a separate process. The witness is a good client of every port during the attack, and
it measures the answers (:mod:`.witness`). The target also connects to other servers itself. Those
servers are hostile, except for one good destination that checks the arriving messages
(:mod:`.remotes`, :mod:`.destinations`).

A *finding* is a limit that the witness or a walker sees broken (:mod:`.judge`). A finding is played
again at a new ``serve`` and shortened as far as possible (:mod:`.minimise`). Then the finding is
saved as a file that the tests replay (:mod:`.findings`).

:mod:`tests.kit.fuzz` tests parsers by themselves.
"""
