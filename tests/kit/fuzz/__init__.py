"""Makes thousands of malformed inputs and checks every parser with them.

The names T16 to T19 are acceptance tests, which ``docs/GUARANTEES.md`` lists: bad inputs for each
parser, XML bombs, smuggled requests and slow clients, and URLs in messages.

- :mod:`.mutators` turns a valid input into an invalid one; :mod:`.binary` does so for binary input.
- :mod:`.samples` has the valid inputs, both saved and generated.
- :mod:`.targets` lists each parser with the errors that it may raise and the rules that its
  results must keep; :mod:`.pieces` has the parsers that read a connection.
- :mod:`.judge` judges one input by time, memory and exceptions. ``python -m tests.kit.fuzz`` does
  so for minutes.
- :mod:`.xml_bombs`, :mod:`.smuggling`, :mod:`.slow_clients` and :mod:`.ssrf` (with
  :mod:`.url_shapes` and :mod:`.any_address`) have the lists and tools of the attacks.

Words of this folder:

- A *target* is one parser with its valid inputs, the *seeds*. Its ``parse`` function returns an
  :class:`.judge.Outcome`. Its ``check`` function raises :class:`.judge.ViolationError` if a rule is
  broken. ``rng`` in a ``check`` function follows from the input, so a check has the same result
  each time.
- A *mutant* is a valid input with random changes.
- A *finding* is an input that broke a rule. Findings are saved in the *corpus*,
  ``tests/fuzz/corpus``.
"""
