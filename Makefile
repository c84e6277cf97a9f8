# A newcomer needs Go and make, nothing else: `make demo`, `make test`. `make` lists the rest.

GO      ?= go
TEST    ?= $(GO) test
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# The SQLite of the embedded Temporal is pure Go, so nothing needs a C compiler but the race detector. One value for
# every target, so that build, test and lint share the build cache.
export CGO_ENABLED = 0

LINTERS := bin/golangci-lint bin/workflowcheck
# Unit tests: those of all packages that do not embed Temporal. The race detector would build and instrument the whole
# server for the others, which is slow and finds nothing of ours.
UNITS = $$($(GO) list ./... mainstay.dev/sdk/... | grep -Ev '/(internal/(cli|controlplane(/dev)?|demo|devserver(/onpostgres)?)|cmd/.*|testsuite/.*)$$')

.DEFAULT_GOAL := help
.PHONY: help demo dev build image openapi page test units whole plants dogfood nightly e2e race bench bench-page chaos fuzz replay record lint fmt clean vuln

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: build ## build, then watch three agents do real work
	bin/mainstay demo

dev: build ## build, then run everything with an embedded Temporal and three agents
	bin/mainstay dev

build: ## build bin/mainstay, bin/mainstay-server, which it starts, and bin/mainstay-bench
	$(GO) build -ldflags '-s -w -X main.version=$(VERSION)' -o bin/ ./cmd/...

image: build ## build the container images `mainstay` and `mainstay-agent`, an agent alone (needs Docker; see docker-compose.yml)
	docker build -q -t mainstay --target mainstay -f deploy/Dockerfile .
	docker build -q -t mainstay-agent --target agent -f deploy/Dockerfile .

openapi: ## write docs/openapi.json anew, after a change of the REST API; a test compares it with the code
	$(GO) run ./cmd/mainstay-server openapi > docs/openapi.json.new
	@mv docs/openapi.json.new docs/openapi.json

page: ## make the fleet page's scripts anew, after a change of its modules; a test compares them
	$(GO) test ./internal/page -run '^TestBundle$$' -count=1 -args -write

# The tests that plant bugs in the program. They build it a second time and take minutes.
PLANTS := ^TestPlants(InTests)?$$

# What waits long, for faults and for thresholds of real time, is left out with -short. `make test SHORT=` runs it too.
SHORT ?= -short

# What measures, to check its ratios: beside others, Temporal is overloaded, and tasks wait for its timeouts.
MEASURES := ^TestBench\w+InSmall$$$$

# Tests that start whole installations. Two such packages at a time overload a machine of two cores: Temporal
# then waits for its own timeouts.
WHOLE := ./testsuite/process ./testsuite/browser ./testsuite/chaos

# Packages that embed Temporal or test the tests, beside those.
EMBEDDERS = $$($(GO) list ./internal/cli ./cmd/... ./internal/controlplane/... ./internal/demo ./internal/devserver/... ./testsuite/... | grep -Ev '/testsuite/(e2e|process|browser|chaos)$$' | sort -u)

# One Temporal serves all of the end-to-end tests, so they run alone, as do those that measure. Tests wait for timers much
# of their time, so more of them run at a time than two cores would have.
test: units whole ## run the tests but those that take minutes; never from the cache, which does not see the program

units: ## run the tests of single packages
	$(TEST) $(SHORT) -count=1 -timeout 30m -p 4 $(UNITS)

race: ## run the tests of single packages under the race detector (needs a C compiler)
	CGO_ENABLED=1 $(TEST) $(SHORT) -race -timeout 20m -p 4 $(UNITS)

whole: build ## run the tests of whole installations
	MAINSTAY_PROGRAM=$(CURDIR)/bin/mainstay $(TEST) $(SHORT) -count=1 -timeout 30m -parallel 4 ./testsuite/e2e
	MAINSTAY_PROGRAM=$(CURDIR)/bin/mainstay $(TEST) $(SHORT) -count=1 -timeout 10m -parallel 1 -run '$(MEASURES)' ./testsuite/process
	MAINSTAY_PROGRAM=$(CURDIR)/bin/mainstay $(TEST) $(SHORT) -count=1 -timeout 30m -p 4 $(EMBEDDERS)
	MAINSTAY_PROGRAM=$(CURDIR)/bin/mainstay $(TEST) $(SHORT) -count=1 -timeout 30m -p 1 -skip '$(PLANTS)|$(MEASURES)' $(WHOLE)

# Which of the planted bugs, and of the fuzz targets, to try: PART=2/6 takes the third of every six.
PART ?= 0/1

plants: ## plant known bugs in the program, one at a time, and see that each is noticed
	$(TEST) -count=1 -timeout 30m -parallel 4 -run '$(PLANTS)' ./testsuite/chaos -args -chaos.part=$(PART)

dogfood: ## run lint, the tests of single packages and three seeds of faults as a job on Mainstay itself
	.ci/dogfood

nightly: ## run all that .ci/run leaves out or shortens: every planted bug, every decoder, ten minutes of faults
	$(MAKE) plants
	$(MAKE) fuzz FUZZTIME=200000x
	$(MAKE) chaos

e2e: ## run the tests of the whole, with the fleet page in a browser (needs Chromium: Debian's package chromium)
	MAINSTAY_REQUIRE_BROWSER=1 $(GO) test -count=1 -timeout 15m ./testsuite/e2e ./testsuite/browser

bench-page: ## measure how long the fleet page takes with 500 agents and 5,000 tasks (needs Chromium)
	MAINSTAY_REQUIRE_BROWSER=1 $(GO) test -count=1 -timeout 20m ./testsuite/browser -run '^$$' -bench '^BenchmarkPage$$' -benchtime 20x

bench: build ## measure throughput and the gateway beside bare Temporal, an idle fleet, services, failover, the queue, types, attacks and a large fleet (about an hour, on a quiet machine)
	bin/mainstay-bench throughput
	bin/mainstay-bench arrays
	bin/mainstay-bench gateway
	bin/mainstay-bench idle
	bin/mainstay-bench services
	bin/mainstay-bench failover
	bin/mainstay-bench queue
	bin/mainstay-bench types
	bin/mainstay-bench attack
	bin/mainstay-bench fleet

# One seed repeats the schedule: make chaos SEED=7 DURATION=1m TASKS=300 RUNS=20
SEED     ?= $(shell date +%s)
DURATION ?= 7m
TASKS    ?= 1500
RUNS     ?= 100
ARRAYS   ?= 24

chaos: ## break a whole installation for ten minutes and check what came of it
	$(GO) test ./testsuite/chaos -run '^TestChaos$$' -count=1 -v -timeout 30m -parallel 4 -args -chaos.seed=$(SEED) -chaos.duration=$(DURATION) -chaos.tasks=$(TASKS) -chaos.runs=$(RUNS) -chaos.arrays=$(ARRAYS) -chaos.agents=9 -chaos.default-timing

# Where to fuzz, and how often each target is called. A count, not a time: when its time is over, go test at times fails without
# a finding (golang/go#75804).
FUZZ     ?= $(shell grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u)
FUZZTIME ?= 2000000x

fuzz: ## fuzz each decoder: make fuzz FUZZTIME=10000000x FUZZ=./sdk/go/protocol
	@set -e; for dir in $(FUZZ); do grep -ho '^func Fuzz[A-Za-z]*' $$dir/*_test.go | sed "s|^func |$$dir |"; done | \
	  awk -v part=$(PART) 'BEGIN { split(part, p, "/") } (NR - 1) % p[2] == p[1]' | \
	  while read dir name; do \
	    $(GO) test -C $$dir -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) </dev/null; \
	  done

replay: ## replay the recorded workflow histories against the present code
	$(GO) test -timeout 5m ./testsuite/replay

record: ## run the replay scenarios for real and write their histories; commit what is new
	$(GO) test -count=1 -timeout 10m ./testsuite/replay -run '^TestRecord' -record

lint: $(LINTERS) ## check style, layout rules and workflow determinism
	bin/golangci-lint run ./...
	cd sdk/go && ../../bin/golangci-lint run ./...
	bin/workflowcheck ./workflows/...

fmt: bin/golangci-lint ## format the code
	bin/golangci-lint fmt ./... ./sdk/go/...

vuln: bin/govulncheck ## look for known vulnerabilities (fetches the Go vulnerability database)
	bin/govulncheck ./cmd/...

clean: ## remove what was built
	rm -rf bin

bin/golangci-lint: PKG = github.com/golangci/golangci-lint/v2/cmd/golangci-lint
bin/workflowcheck: PKG = go.temporal.io/sdk/contrib/tools/workflowcheck
bin/govulncheck:   PKG = golang.org/x/vuln/cmd/govulncheck
$(LINTERS) bin/govulncheck: tools/go.mod tools/go.sum
	@echo "building $@ at the version pinned in tools/go.mod"
	@$(GO) -C tools build -ldflags '-s -w' -o ../$@ $(PKG)
	@touch $@
