"""Bytes that nobody honest sends, made by the thousand (acceptance tests T16 to T19 of the project's reliability plan).

- :mod:`.mutators`: one good input becomes a bad one; :mod:`.samples`: the good ones, saved and written.
- :mod:`.targets`: each parser with what it may raise and what must hold of it; :mod:`.pieces` for those that read a connection.
- :mod:`.judge`: one input, judged: time, memory, exceptions. ``python -m tests.kit.fuzz`` goes on for minutes.
- :mod:`.xml_bombs`, :mod:`.smuggling`, :mod:`.slow_clients`, :mod:`.ssrf` with :mod:`.url_shapes` and :mod:`.any_address`: the
  lists and tools of the attacks.
"""
