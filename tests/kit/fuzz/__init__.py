"""Makes thousands of malformed inputs and checks every parser with them.

The tests are T16 to T19 of the project's reliability plan.

- :mod:`.mutators` turns a valid input into an invalid one; :mod:`.binary` does so for binary input.
- :mod:`.samples` has the valid inputs, both saved and generated.
- :mod:`.targets` lists each parser with the errors that it may raise and the rules that its
  results must keep; :mod:`.pieces` has the parsers that read a connection.
- :mod:`.judge` judges one input by time, memory and exceptions. ``python -m tests.kit.fuzz`` does
  so for minutes.
- :mod:`.xml_bombs`, :mod:`.smuggling`, :mod:`.slow_clients` and :mod:`.ssrf` (with
  :mod:`.url_shapes` and :mod:`.any_address`) have the lists and tools of the attacks.
"""
