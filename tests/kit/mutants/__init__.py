"""Mutants of the product: for each implemented sentence an edit that its named tests must see.

A *mutant* is one replacement in a file of the package that breaks one sentence or several. The
tests that ``docs/musts`` names for the sentence must fail with the mutant and pass without it: then
the mutant is *killed*. A mutant that no named test sees *survives*, and the row in the table is
wrong.

* :mod:`.mutant` reads the entries of ``docs/musts/mutants/DOCUMENT/*.toml``.
* :mod:`.workshop` plants mutants in copies of the project and runs tests there.
* :mod:`.warm` is the program that runs the tests: a process that has imported the libraries.
* :mod:`.record` keeps the verdict of the last run of each row, for the pages.

``make musts-sabotage`` runs ``python -m tests.kit.mutants``.
"""
