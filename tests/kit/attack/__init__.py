"""A fuzzer of the running process: it attacks every port of a real ``serve``.

A *walk* is a list of steps that follows from a seed. Its steps are requests of one protocol, in an
order that no good client uses, over several connections and addresses. A *walker* plans walks for
one port, and its *player* plays them (:mod:`.walkers`). All walkers run at the same time.

The *target* is the attacked ``serve`` (:mod:`.target`). A *witness* is a separate process. The
witness is a good client of every port during the attack, and it measures the answers
(:mod:`.witness`). The target also connects to other servers itself. Those servers are hostile,
except for one good destination that checks the arriving messages (:mod:`.remotes`,
:mod:`.destinations`).

A *finding* is a broken limit or promise that the witness or a walker sees (:mod:`.judge`). A
finding is played again at a new ``serve`` and shortened as far as possible (:mod:`.minimise`). Then
the finding is saved as a file that the tests replay (:mod:`.findings`).

*Good* clients and servers keep the protocol. *Restricted* tokens give rights for one queue only. A
*stage* is the Arrow stream of rows that one Spark task uploads before the commit of its batch.
Times are in seconds; ``until`` and ``end`` are values of ``time.monotonic``.

:mod:`tests.kit.fuzz` tests parsers by themselves.
"""
