"""The way out in virtual time: the sender process's own dispatcher, engine, connections and places, a simulated net and disk.

- :mod:`.virtual_loop`: an event loop whose time moves only when nothing is left to do now;
- :mod:`.peers`: destinations that answer, and those that are dead, black-holed, silent, slow, refusing, or behind a slow line;
- :mod:`.rig`: the dispatcher between a simulated outbox and these peers;
- :mod:`.life`: one seed, one life with many destinations, and what must be true of it; :mod:`.letters`: the same for dead
  letters that are handed to the queues of applications; :mod:`.planted`: bugs that both must find;
- :mod:`.day`: a day of traffic to a thousand destinations of which a tenth is in trouble.

    python -m tests.kit.wayout --seeds 1000
    python -m tests.kit.wayout --day --hours 24
"""
