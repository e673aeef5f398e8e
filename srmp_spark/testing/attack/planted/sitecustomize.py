"""Plant the bug that the environment names; Python loads this module by its name at each start."""

import os

if os.environ.get("ATTACK_PLANTED_BUG"):
    from srmp_spark.testing.attack.planted.bugs import plant

    plant(os.environ["ATTACK_PLANTED_BUG"])
