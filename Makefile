# "make" or "make help" lists the targets.
# Bounds the tests of one package. A net only: a slow machine needs several times what a quick one does.
TEST_TIMEOUT ?= 30m
# The end-to-end tests mostly wait for one another's servers, so more of them than there are cores go on at once.
TEST_PARALLEL ?= 6

# One way to build for everything: what is compiled once serves the tests, the checks and the demo, in another clone, too.
export GOFLAGS := $(GOFLAGS) -trimpath

.DEFAULT_GOAL := help
.PHONY: help demo test test-all chart fault attack bench crowd idle screenshots build lint deps

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## see a worker being woken, on this machine (needs Go and Node 20; Ctrl-C ends it)
	@go build -o .tools/demo ./test/demo
	@exec .tools/demo

# The tests of the chart and of the page in a browser are modules of their own, so that Helm's dependencies, and what drives the
# browser, are not ours. The chart's go without the race detector, which would have all the types of Kubernetes compiled once more.
test: deps lint ## check the code and run every test in its short form (some 10 minutes; runs make deps first)
	@.ci/test short . ./... -short -race -parallel $(TEST_PARALLEL) -timeout $(TEST_TIMEOUT)
	@.ci/test browser test/browser ./... -short -race -parallel $(TEST_PARALLEL) -timeout $(TEST_TIMEOUT)
	@.ci/test chart-short test/chart ./... -short -timeout $(TEST_TIMEOUT)

test-all: test ## make test, then the long form of every test (over an hour; alone on the machine; ONLY=regexp picks parts)
	@TEST_PARALLEL=$(TEST_PARALLEL) TEST_TIMEOUT=2h .ci/test-all

chart: ## render the Helm chart in every way and hold it against Kubernetes and the program
	@.ci/test chart test/chart ./... -timeout $(TEST_TIMEOUT)

# How long everything goes wrong at random, in minutes. FAULT_SCENARIO, a regular expression, picks scenarios; FAULT_SEED
# draws the same faults again.
FAULT_MINUTES ?= 1

fault: deps ## kill, freeze and cut off replicas, Redis and the stream server, and show that nothing was lost (FAULT_MINUTES=1)
	@FAULT_MINUTES=$(FAULT_MINUTES) go test -count=1 -v -timeout $$((2 * $(FAULT_MINUTES) + 75))m \
		-run '^(TestFaults|TestTheCheckerCatchesBrokenBuilds)$$' ./test/fault

idle: deps ## measure what an idle replica needs, with 0, 1,000 and 10,000 watched streams (some 8 minutes; 20,000 open files must be allowed)
	IDLE_STREAMS="0 1000 10000" go test -count=1 -v -timeout 40m -run IdleReplica ./test/image

screenshots: deps ## make the pictures of the page for operators anew
	SCREENSHOTS=$(CURDIR)/httpapi/console/pictures go -C test/browser test -count=1 -run TestScreenshots .

# Without symbols for a debugger, as the image has it: stack traces and profiles do not need them.
build: ## build ./reveille
	go build -buildvcs=auto -ldflags='-s -w' -o reveille ./cmd/reveille

attack: deps ## hold it against attacks with the full numbers and print what it cost (some 15 minutes; 20,000 open files must be allowed)
	ATTACK=full go test -count=1 -v -timeout 40m ./test/attack

crowd: deps ## show that no answer to an operator reads without bound, with 10,000 subscriptions and 1,000,000 consumers (some 5 minutes)
	CROWD=full go test -count=1 -v -timeout 40m ./test/crowd

# full or quick. BENCH_ONLY, a regular expression, picks parts; BENCH_BASE, another build's program, is compared with this one by
# turns; BENCH_RESULTS=test/bench/RESULTS.md keeps what was measured.
BENCH ?= full

bench: deps ## measure how quick it is, beside the least that could do it (half an hour; BENCH=quick takes four minutes)
	@BENCH=$(BENCH) go test -count=1 -v -timeout 120m -run '^TestBench$$' ./test/bench

lint: ## check the format and look for mistakes
	@.ci/lint

deps: ## install what the tests need and the machine lacks: redis-server, Python 3, luacheck, Chromium, gcc
	@.ci/install-deps
