# nodeprof: build, try, test, measure. `make` alone lists what there is.

PREFIX ?= /usr/local
DESTDIR ?=

BIN := target/release/nodeprof
# What the trace and the tests run; node_modules/.package-lock.json is npm's own note of what it installed.
EXPRESS := examples/express/node_modules/.package-lock.json
ESM := examples/esm/node_modules/.package-lock.json
# Programs that the tests give profiles to.
CONSUMERS := flamegraphs/tests/consumers/node_modules/.package-lock.json
# The page of the HTML report: its packages, and the page itself, which cargo embeds if it is there.
PAGE_PACKAGES := flamegraphs/page/node_modules/.package-lock.json
PAGE := flamegraphs/page/dist/page.html
BENCH_SUBJECTS := bench/subjects/node_modules/.package-lock.json

.DEFAULT_GOAL := help
SYSCONFDIR ?= /etc
UNITDIR ?= /etc/systemd/system

.PHONY: help setup build page trace test node-builds bench lint fmt install install-service uninstall clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: ## install what the build needs and this machine lacks
	@scripts/setup build

build: setup page ## build the release binaries
	cargo build --release --workspace

page: ## build the page of the HTML report; without npm everything but HTML works
	@if command -v npm >/dev/null 2>&1; then $(MAKE) --no-print-directory $(PAGE); else \
	  echo "make: npm not found: nodeprof is built without its HTML page; install Node.js with npm and type make build to have it" >&2; fi

$(PAGE): $(PAGE_PACKAGES) flamegraphs/page/build.mjs flamegraphs/page/tsconfig.json $(wildcard flamegraphs/page/src/*)
	@cd flamegraphs/page && npm run --silent check && npm run --silent build
	@touch $@

trace: build $(EXPRESS) ## build, then trace the start of a real program
	@echo "$(BIN) trace -- node examples/express/app.js"
	@# By its path: sudo may know no node, or another one.
	@scripts/as-root $(BIN) trace -- "$$(command -v node)" examples/express/app.js

test: ## run all tests, also the privileged ones
	@scripts/setup build test
	@$(MAKE) --no-print-directory node-builds $(EXPRESS) $(ESM) $(BENCH_SUBJECTS) $(CONSUMERS) $(PAGE)
	@scripts/run-tests

node-builds: ## fetch the official Node.js builds that the tests probe
	@scripts/fetch-node-builds

bench: build $(EXPRESS) $(BENCH_SUBJECTS) ## measure against bare and other tools, write docs/benchmarks.md
	@scripts/as-root bench/run --node "$$(command -v node)" --write docs/benchmarks.md
	@scripts/as-root bench/walk --node "$$(command -v node)" --write docs/benchmarks.md
	@bench/report --write docs/benchmarks.md
	@bench/page --write docs/benchmarks.md

lint: ## check form: rustfmt, clippy, clang-format, lock files
	@scripts/setup build lint
	@scripts/lint

fmt: ## format all Rust and C
	@scripts/setup lint
	cargo fmt --all
	git ls-files -z --cached --others --exclude-standard -- 'bpf/programs/*.c' 'bpf/programs/*.h' | xargs -0 -r clang-format -i

# The binary is not rebuilt if it is there: `make build`, then `sudo make install` builds nothing as root.
install: | $(BIN) ## install into PREFIX (/usr/local)
	install -d $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(BIN) $(DESTDIR)$(PREFIX)/bin/nodeprof
	@if [ -x target/release/nodeprofd ]; then install -m 755 target/release/nodeprofd $(DESTDIR)$(PREFIX)/bin/nodeprofd; fi

install-service: install ## install the unit of nodeprofd and its configuration; an existing one stays
	install -d $(DESTDIR)$(UNITDIR) $(DESTDIR)$(SYSCONFDIR)/nodeprof
	sed 's|/usr/local|$(PREFIX)|g' systemd/nodeprofd.service >$(DESTDIR)$(UNITDIR)/nodeprofd.service
	@[ -e $(DESTDIR)$(SYSCONFDIR)/nodeprof/nodeprofd.toml ] || install -m 644 systemd/nodeprofd.toml $(DESTDIR)$(SYSCONFDIR)/nodeprof/nodeprofd.toml
	@echo "to start it, type: sudo systemctl daemon-reload && sudo systemctl enable --now nodeprofd"

uninstall: ## remove what install and install-service installed; configuration and recordings stay
	rm -f $(DESTDIR)$(UNITDIR)/nodeprofd.service
	rm -f $(DESTDIR)$(PREFIX)/bin/nodeprof $(DESTDIR)$(PREFIX)/bin/nodeprofd

$(BIN):
	@$(MAKE) --no-print-directory build

clean: ## remove what was built; fetched Node.js builds stay
	cargo clean
	rm -rf examples/*/node_modules bench/subjects/node_modules flamegraphs/tests/consumers/node_modules flamegraphs/page/node_modules flamegraphs/page/dist/page.html

%/node_modules/.package-lock.json: %/package-lock.json %/package.json
	@echo "npm ci in $*"
	@cd $* && npm ci --no-audit --no-fund --loglevel=error
	@touch $@
