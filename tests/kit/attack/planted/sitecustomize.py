"""Plants the bug that the environment names; Python loads this module at each start.

Python ignores the errors of a module with this name. A bug that was not planted would never be
found, so the process ends on an error.
"""

import os
import traceback

if os.environ.get("ATTACK_PLANTED_BUG"):
    try:
        from tests.kit.attack.planted.bugs import plant

        plant(os.environ["ATTACK_PLANTED_BUG"])
    # After any error the process must end, because it must not run without its bug.
    except Exception:
        traceback.print_exc()
        os._exit(70)
