"""The reader process, seen from both sides: decoding, sealing and publishing, away from the loop that accepts.

``link`` is the main process's side (starts the child, sends commands, hands out answers) and says how the two talk;
``process`` is the child; ``answer`` writes what the child answers and tells; ``dense_rows`` frames stored pieces for Spark.
The main process loads ``link`` only: the rest imports Arrow.
"""
