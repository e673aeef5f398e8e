# One command for everything. Each target sets itself up; `make` alone lists them.
#
#   VENV=DIR          where the virtual environment lives (default .venv)
#   PYTHON_BIN=FILE   the Python to build it with (default: the first of python3, python3.13 … 3.10 that is 3.10 or newer)
#   PYTEST="…"        more arguments for pytest
#   MINUTES=N             how long `make fuzz` and `make flat-pgm` run; CONNECTIONS=N, how many `make slow` opens
#   TEST_JOBS=N       processes that run the tests (default 4: they wait more than they compute; which tests stay together: tests/conftest.py)

SHELL := /bin/bash
VENV ?= .venv
PYTHON_BIN ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.10 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && { command -v "$$p"; break; }; done)
PYTHON := $(VENV)/bin/python
STAMP := $(VENV)/.srmp-spark-setup
SEEDS ?= 1000
SCHEDULES ?= 10000
SIM_JOBS ?= 2
TEST_JOBS ?= 4
SECONDS ?= 300
MINUTES ?= 10
CONNECTIONS ?= 5000
DRILL_SECONDS ?= 40
ROUNDS ?= 3
KILLS ?= 200
HOURS ?= 24
CASES ?= 200
PYTHONS ?=
PYTEST ?=

# Spark's workers must be this Python and no other (docs/troubleshooting.md).
export PYSPARK_PYTHON := $(abspath $(PYTHON))
export PYSPARK_DRIVER_PYTHON := $(abspath $(PYTHON))
export PYTHONPATH := $(CURDIR)$(if $(PYTHONPATH),:$(PYTHONPATH))

# Where no bytecode may be written, each of the thousand processes that tests start compiles all our modules again.
unexport PYTHONDONTWRITEBYTECODE

# A JVM that lives for a minute spends half its time compiling what it will not run again: only the first compiler, then.
# The classes of Spark and Delta come mapped from a file that `make setup` has written (class data sharing): a start takes
# two thirds of the CPU. A JVM that cannot use the file (another Java, say) starts without it, and without a word.
# With one compiler a JVM reserves 48 MB for compiled code: Spark fills them, and methods are thrown away and compiled again.
# With room for all of it a session that runs queries for a minute takes a tenth less CPU.
ROOM_FOR_CODE := -XX:ReservedCodeCacheSize=240m -XX:-UseCodeCacheFlushing
ONE_COMPILER := JAVA_TOOL_OPTIONS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC $(ROOM_FOR_CODE) $$JAVA_TOOL_OPTIONS"
CLASSES := $(abspath $(VENV))/spark.jsa
QUIET_CLASSES := -Xlog:cds=off -Xlog:cds+dynamic=off
FAST_START := SPARK_SUBMIT_OPTS="-XX:SharedArchiveFile=$(CLASSES) $(QUIET_CLASSES) $$SPARK_SUBMIT_OPTS"
SHORT_JVM := $(ONE_COMPILER) $(FAST_START)

# Of pip's hundreds of lines those that take long, so that nobody takes minutes of silence for a hang.
PIP_SAYS := sed -unE 's/^ *((Downloading|Using cached) .* MB\)|Building wheel for .*: started|Installing collected packages).*/  \1/p'

.DEFAULT_GOAL := help
.PHONY: help setup java demo test test-long collect test-again lint check docs docs-reference docs-musts docs-guarantees docs-pictures notebooks grafana musts-sabotage bench bench-quick scale many sim sim-pgm sim-sink sim-wsrm day model interop-pgm flat-pgm interop-mqrr interop-wsrm kill kill-ingest kill-forward kill-out kill-pull restarts rollback clocks proof long clean attack attack-planted fuzz slow drill failover crash room powerloss strace

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## build .venv with everything in it, Delta's jars included (once; two minutes, ten on a slow line or a busy machine)

java:
	@bash conf/check-java.sh

$(STAMP): pyproject.toml | java
	@test -n "$(PYTHON_BIN)" || { echo "Python 3.10 or newer is missing: install it (Debian, Ubuntu: apt-get install python3 python3-venv) or give PYTHON_BIN=/path/to/python3" >&2; exit 2; }
	@echo "setup 1/3: $(VENV), a virtual environment of $(PYTHON_BIN)"
	@test -x $(PYTHON) || "$(PYTHON_BIN)" -m venv $(VENV) || { rm -rf $(VENV); echo "could not build $(VENV) with $(PYTHON_BIN): is its venv module there? (Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 2; }
	@echo "setup 2/3: installing packages, Spark alone is over 400 MB (minutes)"
	@set -o pipefail; $(PYTHON) -m pip install --progress-bar off --disable-pip-version-check --editable '.[dev]' | $(PIP_SAYS)
	@$(PYTHON) -m tests.kit.bytecode >/dev/null
	@echo "setup 3/3: fetching Delta's jars with a first Spark session (up to a minute)"
	@rm -f $(CLASSES)
	@$(ONE_COMPILER) SPARK_SUBMIT_OPTS="-XX:ArchiveClassesAtExit=$(CLASSES) $(QUIET_CLASSES)" $(PYTHON) jobs/jars.py 2>$(VENV)/jars.log || { cat $(VENV)/jars.log >&2; exit 1; }
	@touch $@
	@echo "setup: done"

demo: setup java ## 2,000 messages over HTTP into a Delta table and out again while things are killed; two minutes, ten on a busy machine
	@$(FAST_START) $(PYTHON) jobs/demo.py

test: setup java ## every test, Spark and the acceptance tests with them; of random tests the first samples
	@$(SHORT_JVM) $(PYTHON) -m pytest -n $(TEST_JOBS) --dist loadgroup --no-loadscope-reorder -m "not long" $(PYTEST)

test-long: setup java ## the samples that make test leaves out
	@$(SHORT_JVM) $(PYTHON) -m pytest -n $(TEST_JOBS) --dist loadgroup --no-loadscope-reorder -m long $(PYTEST)

collect: setup ## find every test and run none: afterwards the processes of `make test` begin at once
	@$(PYTHON) -m pytest --collect-only -qq >/dev/null

test-again: setup java ## what failed in the last run of `make test`, each alone; what passes now is told as FLAKY
	@$(SHORT_JVM) $(PYTHON) tests/again.py -q

lint: setup ## ruff and mypy
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy

check: setup lint ## lint, the import rules, the links of the documentation
	@$(PYTHON) -m pytest -q tests/test_architecture.py tests/docs

docs: setup ## build the documentation as a site in .site, strictly: a broken link ends it
	@NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --quiet && echo "docs: open .site/index.html"

docs-reference: setup ## docs/reference/*.md: options, columns, commands, keys, API, metrics, log events and errors, from the tables of the code
	@PYTHONPATH="docs/site:$$PYTHONPATH" $(PYTHON) -m reference_pages

docs-musts: setup ## docs/MUSTS.md, MUSTS_MQRR.md, MUSTS_WSRVCRM.md: each MUST of the documents and the tests that fail when it is broken
	@$(PYTHON) -m tests.kit.musts_pages

docs-guarantees: setup ## docs/GUARANTEES_TESTS.md: the tests behind each promise of docs/GUARANTEES.md
	@$(PYTHON) -m tests.kit.guarantees

docs-pictures: setup ## docs/pictures/*.svg, from the descriptions in docs/site/pictures.py
	@$(PYTHON) docs/site/pictures.py

notebooks: setup java ## run the notebooks and store them with their tables and pictures; a minute
	@$(SHORT_JVM) $(PYTHON) -m tests.kit.notebooks

grafana: setup ## conf/grafana.json, from the panels in docs/site/dashboard.py
	@$(PYTHON) docs/site/dashboard.py

musts-sabotage: setup ## break the sentences of the MUST pages one by one: the tests that the pages name must fail; half an hour
	@$(SHORT_JVM) $(PYTHON) -m tests.kit.mutants $(MUTANTS)

bench: setup java ## measure against the targets; the last line is one JSON object; make bench WRITE=1 puts the figures into benchmarks/README.md
	@$(PYTHON) -m benchmarks $(if $(WRITE),--write)

bench-quick: setup java ## every benchmark once with small sizes, those of make scale too: it shows that they run, and judges no figure; two minutes
	@$(SHORT_JVM) $(PYTHON) -m benchmarks --quick --scale

scale: setup java ## ten million identifiers, a million waiting rows, a day without Spark; half an hour: make scale ROUNDS=5
	@$(PYTHON) -m benchmarks.scale --rounds $(ROUNDS)

many: setup ## 10,000 queues and 100,000 streams: idle CPU, start, status; three minutes
	@$(PYTHON) -m benchmarks.scale --only many

sim: setup ## simulated failures, one seed a run: make sim SEEDS=10000
	@$(PYTHON) -m tests.kit.simulation --seeds $(SEEDS) --jobs $(SIM_JOBS)
	@$(PYTHON) -m tests.kit.wayout --seeds $$(($(SEEDS) / 100 + 1)) --jobs $(SIM_JOBS)

day: setup ## a simulated day of messages to 1,000 destinations, a tenth of them in trouble: the others' latency: make day HOURS=24
	@$(PYTHON) -m tests.kit.wayout --day --hours $(HOURS)

sim-pgm: setup ## simulated multicast (PGM): loss, bursts, late join, storms, wrap; one seed a run: make sim-pgm SEEDS=100000
	@$(PYTHON) -m tests.kit.pgm.simulation --seeds $(SEEDS) --jobs $(SIM_JOBS)

sim-sink: setup ## simulated sinks on a real outbox: runs and re-runs of batches, several sinks, conflicts; one seed a run: make sim-sink SEEDS=100000
	@$(PYTHON) -m tests.kit.sink_simulation --seeds $(SEEDS)
	@$(PYTHON) -m tests.kit.sink_simulation --seeds $$(($(SEEDS) / 5)) --large

sim-wsrm: setup ## simulated WS-ReliableMessaging: loss, copies, crashes, a queue that is full; one seed a run: make sim-wsrm SEEDS=100000
	@$(PYTHON) -m tests.kit.wsrm.simulation --seeds $(SEEDS) --jobs $(SIM_JOBS)

model: setup java ## random schedules of queues and queries without Spark, and fifty through Spark: make model SCHEDULES=10000
	@$(PYTHON) -m tests.kit.queries --schedules $(SCHEDULES) --jobs $(SIM_JOBS)
	@$(SHORT_JVM) SRMP_SPARK_SPARK_SCHEDULES=50 $(PYTHON) -m pytest -v tests/spark/test_engine_schedules.py $(PYTEST)

interop-pgm: setup ## our PGM and OpenPGM, libzmq and tshark on one wire, with losses; needs no root; ten minutes
	@$(PYTHON) -m tests.kit.pgm.interop

flat-pgm: setup ## one multicast session with losses: the memory of source and receiver stays flat; needs no root: make flat-pgm MINUTES=10
	@$(PYTHON) -m benchmarks.pgm_flat --minutes $(MINUTES)

kill: setup ## the long version of the kill test: make kill SECONDS=300
	@SRMP_SPARK_KILL_SECONDS=$(SECONDS) $(PYTHON) -m pytest -s -v tests/acceptance/test_kill.py

kill-ingest: setup java ## the same with the ingest job, killed too, into a Delta table: make kill-ingest SECONDS=300
	@SRMP_SPARK_KILL_SECONDS=$(SECONDS) $(PYTHON) -m pytest -s -v tests/acceptance/test_kill_ingest.py

kill-forward: setup ## the same for store-and-forward: make kill-forward SECONDS=300
	@SRMP_SPARK_KILL_SECONDS=$(SECONDS) $(PYTHON) -m pytest -s -v tests/sender/test_kill_forward.py

kill-out: setup ## the same for what goes out: make kill-out SECONDS=300
	@SRMP_SPARK_KILL_SECONDS=$(SECONDS) $(PYTHON) -m pytest -s -v tests/sender/test_kill_out.py

kill-pull: setup ## a remote queue is read while either side is killed, so often: make kill-pull KILLS=200 (a quarter of an hour)
	@SRMP_SPARK_PULL_KILLS=$(KILLS) SRMP_SPARK_PULLS=5000 $(PYTHON) -m pytest -s -v tests/remote_read/test_pulling.py \
		tests/remote_read/test_pulling_steps.py tests/remote_read/test_pulling_locks.py tests/remote_read/test_pulling_live.py tests/remote_read/test_pulling_foreign.py $(PYTEST)

restarts: setup java ## the ingest job is killed at five named points, so often at each: make restarts KILLS=200 (hours)
	@$(SHORT_JVM) SRMP_SPARK_RESTARTS=$(KILLS) $(PYTHON) -m pytest -s -v tests/spark/test_restarts.py $(PYTEST)

rollback: setup java ## files of the ingest job's checkpoint are taken away, so often: make rollback CASES=200
	@$(SHORT_JVM) SRMP_SPARK_ROLLBACKS=$(CASES) $(PYTHON) -m pytest -s -v tests/spark/test_checkpoint_rolled_back.py $(PYTEST)

clocks: setup ## simulated runs with and without a wall clock that is set: make clocks SEEDS=100000
	@SRMP_SPARK_CLOCK_SEEDS=$(SEEDS) $(PYTHON) -m pytest -s -v tests/simulation/test_clock_jumps.py $(PYTEST)

proof: setup strace ## the long versions of the rest: damaged Delta state, two of everything, set clocks, forgeries: make proof PYTHONS="python3.10 python3.13"
	@SRMP_SPARK_DAMAGES=300 SRMP_SPARK_RACES=1000 SRMP_SPARK_PAUSE_SECONDS=60 SRMP_SPARK_CLOCK_JUMPS=200 \
		SRMP_SPARK_FORGERIES=10000 SRMP_SPARK_SIM_DIGESTS=1000 SRMP_SPARK_SIM_SEEDS=10000 SRMP_SPARK_MQRR_MUTANTS=10000 SRMP_SPARK_PYTHONS="$(PYTHONS)" \
		$(PYTHON) -m pytest -s -v tests/delta/test_damage.py tests/delta/test_publisher_race.py tests/disk/test_publish_trace.py \
		tests/queue_manager/test_two_of_everything.py tests/queue_manager/test_clock_jumps_live.py \
		tests/queue_manager/test_https.py tests/sender/test_https_out.py tests/sender/test_receipts_address.py \
		tests/simulation/test_simulation.py tests/mqrr/test_mqrr_fuzz.py $(PYTEST)

long: setup ## the whole of what make test takes a part of: mutants of the fuzz lists, failing statements, kills of the outbox; ten minutes
	@SRMP_SPARK_MUTANTS=10000 SRMP_SPARK_MQRR_MUTANTS=10000 SRMP_SPARK_CRASH=full SRMP_SPARK_KILLS=40 \
		$(PYTHON) -m pytest -v tests/fuzz/test_fuzz.py tests/mqrr/test_mqrr_fuzz.py tests/outbox/test_crash.py $(PYTEST)

# One process a core, a test at a time: their parts are tests of their own (tests/conftest.py keeps modules together otherwise).
ALL_CORES := -n auto --dist load

strace:
	@command -v strace >/dev/null || { echo "strace is missing (Linux only; Debian, Ubuntu: apt-get install strace)" >&2; exit 2; }

room: setup ## a volume of 64 MB is filled and emptied ten times under load, its Delta state on it; half a minute, needs root
	@SRMP_SPARK_ROOM_ROUNDS=10 $(PYTHON) -m pytest -s -v tests/disk/test_small_volume.py tests/disk/test_trim_makes_room.py $(PYTEST)

crash: setup strace ## kill -9, failed writes, a full disk and rot at every call of a session of 1,000 messages; an hour
	@SRMP_SPARK_CRASH=full $(PYTHON) -m pytest -s -v -rA $(ALL_CORES) tests/disk --deselect tests/disk/test_power_loss.py $(PYTEST)

powerloss: setup strace ## the power goes at every sync of a session of 1,000 messages, in seven ways; half an hour
	@SRMP_SPARK_POWERLOSS=full $(PYTHON) -m pytest -s -v -rA $(ALL_CORES) tests/disk/test_power_loss.py $(PYTEST)

fuzz: setup ## random bad inputs for every parser on all cores; what is found becomes a test: make fuzz MINUTES=60
	@$(PYTHON) -m tests.kit.fuzz --minutes $(MINUTES)

attack: setup ## attack a running queue manager at every port, judged from outside; needs a quiet machine: make attack MINUTES=10 SEED=1
	@$(PYTHON) -m tests.kit.attack --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

attack-planted: setup ## break each repaired fault again, and see that make attack finds it; needs a quiet machine: make attack-planted MINUTES=5
	@$(PYTHON) -m tests.kit.attack --every-plant --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

slow: setup ## the long version of the slow clients, for a minute: make slow CONNECTIONS=5000
	@SRMP_SPARK_SLOW_CONNECTIONS=$(CONNECTIONS) SRMP_SPARK_SLOW_SECONDS=60 $(PYTHON) -m pytest -s -v tests/fuzz/test_slow_clients.py

interop-mqrr: setup ## foreign clients read our queues over RPC: go-msrpc (needs Go) and impacket
	@$(PYTHON) -m pip install --progress-bar off --disable-pip-version-check --quiet --editable '.[dev,interop]'
	@SRMP_SPARK_INTEROP_MQRR=1 $(PYTHON) -m pytest -v tests/remote_read/test_peers.py $(PYTEST)

interop-wsrm: setup java ## Apache CXF and Eclipse Metro, clients and services, against us, with losses; needs Maven; fifteen minutes
	@SRMP_SPARK_INTEROP_WSRM=1 $(PYTHON) -m pytest -v tests/wsrm/test_wsrm_interop.py tests/wsrm/test_wsrm_out_interop.py $(PYTEST)

drill: setup ## a lost disk under traffic, and what restore makes of it: make drill DRILL_SECONDS=60 ROUNDS=5
	@$(PYTHON) -m tests.kit.drill.run --seconds $(DRILL_SECONDS) --rounds $(ROUNDS)

failover: setup java ## two nodes, one data directory: what senders, readers and a Spark query notice when it moves: make failover ROUNDS=5
	@$(SHORT_JVM) $(PYTHON) -m tests.kit.failover.run --spark --rounds $(ROUNDS)

clean: ## remove what the targets left behind, .venv excepted
	@rm -rf demo-data artifacts spark-warehouse metastore_db derby.log .site .pytest_cache .mypy_cache .ruff_cache .hypothesis
