"""The form of a log line: text for people, JSON for programs.

Every process of ``serve`` writes its log to its standard error in one of two forms
(:mod:`.form`). Both are made of the same log calls, ``log.warning('event.name field=%s', value)``.
A field's name and place come from the text in the source (:mod:`.template`), never from a value, so
no value can forge a field. Names and types of all fields are in :mod:`.fields`.
"""
