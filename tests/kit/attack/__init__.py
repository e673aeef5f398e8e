"""A fuzzer of the running process: sequences of requests at every port of a real ``serve``, judged from outside.

A *walk* is a list of steps that follows from a seed: requests of one protocol in an order that no good client uses, over
several connections and addresses. A *walker* plans walks and plays them at one port (:mod:`.walkers`). All walkers run at
once. A *witness*, a process of its own, is a good client of every port meanwhile, and measures (:mod:`.witness`). Where the
target itself connects to others, it meets hostile ones and, of those that it sends to, a good one that watches what arrives
(:mod:`.remotes`, :mod:`.destinations`). Some limit that the witness or a walker sees broken is a *finding* (:mod:`.judge`). A
finding is played again at a new ``serve``, made as short as it can be (:mod:`.minimise`), and saved as a file that the tests
replay (:mod:`.findings`).

Parsers by themselves are the matter of :mod:`tests.kit.fuzz`.
"""
