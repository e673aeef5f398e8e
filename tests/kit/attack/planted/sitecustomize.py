"""Plant the bug that the environment names; Python loads this module by its name at each start.

Python passes over the errors of such a module. A bug that was not planted would be one that nobody finds, so the process ends.
"""

import os
import traceback

if os.environ.get("ATTACK_PLANTED_BUG"):
    try:
        from tests.kit.attack.planted.bugs import plant

        plant(os.environ["ATTACK_PLANTED_BUG"])
    except Exception:  # whatever it is, the process must not run without its bug
        traceback.print_exc()
        os._exit(70)
