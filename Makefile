# nodeprof: build, try, test, measure. `make` alone lists what there is.

PREFIX ?= /usr/local
DESTDIR ?=

# Where cargo builds: somebody's own folder, if they have one.
TARGET := $(or $(CARGO_TARGET_DIR),target)
BINARIES ?= $(TARGET)/release
BIN := $(BINARIES)/nodeprof
# What the trace and the tests run; node_modules/.package-lock.json is npm's own note of what it installed.
EXPRESS := examples/express/node_modules/.package-lock.json
ESM := examples/esm/node_modules/.package-lock.json
# Programs that the tests give profiles to.
CONSUMERS := flamegraphs/tests/consumers/node_modules/.package-lock.json
# The page of the HTML report: its packages, and the page itself, which cargo embeds if it is there.
PAGE_PACKAGES := flamegraphs/page/node_modules/.package-lock.json
PAGE := flamegraphs/page/dist/page.html
BENCH_SUBJECTS := bench/subjects/node_modules/.package-lock.json
ISOLATES := cli/tests/isolates/node_modules/.package-lock.json
# What draws the plots of the articles.
ARTICLE_PLOTS := bench/articles/node_modules/.package-lock.json
# Which of them `make articles` replays; all if none is named.
ARTICLE ?=

.DEFAULT_GOAL := help
SYSCONFDIR ?= /etc
UNITDIR ?= /etc/systemd/system

.PHONY: help setup build page trace test node-builds bench articles soak lint fmt install install-files deb uninstall clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: ## install what the build needs and this machine lacks
	@scripts/setup build

build: setup page ## build the release binaries
	cargo build --release --workspace

page: ## build the page of the HTML report; without npm everything but HTML works
	@if ! command -v npm >/dev/null 2>&1; then \
	  echo "make: npm not found: nodeprof is built without its HTML page; install Node.js with npm and type make build to have it" >&2; \
	elif ! node -e 'process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)'; then \
	  echo "make: found: node $$(node --version); needed to build the HTML page: 18 or newer; nodeprof is built without it" >&2; \
	else $(MAKE) --no-print-directory $(PAGE); fi

$(PAGE): $(PAGE_PACKAGES) flamegraphs/page/build.mjs flamegraphs/page/tsconfig.json $(wildcard flamegraphs/page/src/*)
	@cd flamegraphs/page && npm run --silent check && npm run --silent build
	@touch $@

trace: build $(EXPRESS) ## build, then trace the start of a real program
	@echo "$(BIN) trace -- node examples/express/app.js"
	@# By its path: sudo may know no node, or another one.
	@scripts/as-root "$(BIN)" trace -- "$$(command -v node)" examples/express/app.js

test: ## run all tests, also the privileged ones
	@scripts/setup build test
	@# Its one test is skipped without it.
	@scripts/fetch-prometheus || true
	@$(MAKE) --no-print-directory node-builds $(EXPRESS) $(ESM) $(BENCH_SUBJECTS) $(ISOLATES) $(ARTICLE_PLOTS) $(CONSUMERS) $(PAGE)
	@scripts/run-tests

node-builds: ## fetch the official Node.js builds that the tests probe
	@scripts/fetch-node-builds
	@scripts/fetch-alpine-node || true

bench: build $(EXPRESS) $(BENCH_SUBJECTS) ## measure against bare and other tools, write docs/benchmarks.md
	@cargo build --release --package nodeprof-bpf --example bare_probes
	@scripts/as-root bench/run --node "$$(command -v node)" --write docs/benchmarks.md
	@scripts/as-root bench/walk --node "$$(command -v node)" --write docs/benchmarks.md
	@bench/report --write docs/benchmarks.md
	@bench/page --write docs/benchmarks.md

articles: build $(EXPRESS) $(BENCH_SUBJECTS) $(ARTICLE_PLOTS) ## replay published articles, write docs/articles/ (one: ARTICLE=loader)
	@versions=$$(bench/articles/run --versions $(ARTICLE)) && scripts/fetch-node-builds $$versions
	@scripts/as-root bench/articles/run --node "$$(command -v node)" --builds "$$(scripts/fetch-node-builds --folder)" $(ARTICLE)

soak: build node-builds ## nodeprofd under load: 10,000 starts, 200 kills, a storm of execs; half an hour, as root
	@scripts/as-root bench/soak --write docs/service.md

lint: ## check form: rustfmt, clippy, clang-format, lock files
	@scripts/setup build lint
	@scripts/lint

fmt: ## format all Rust and C
	@scripts/setup lint
	cargo fmt --all
	git ls-files -z --cached --others --exclude-standard -- 'bpf/programs/*.c' 'bpf/programs/*.h' | xargs -0 -r clang-format -i

# It builds nothing: `make build`, then `sudo make install`, and nothing in the tree comes to belong to root.
install: ## install into PREFIX (/usr/local), the service of nodeprofd too; an existing configuration stays
	@$(MAKE) --no-print-directory install-files
	@if [ -z "$(DESTDIR)" ] && [ -d /run/systemd/system ]; then systemd-sysusers nodeprof.conf && systemctl daemon-reload; fi
	@if [ -z "$(DESTDIR)" ] && [ -d /run/systemd/system ] && systemctl --quiet is-active nodeprofd.service; then \
	  echo "to change over to this version, type: sudo systemctl try-restart nodeprof-holder nodeprofd nodeprof-metrics nodeprof-view"; \
	else echo "to start the service, type: sudo systemctl enable --now nodeprofd"; fi

SYSUSERSDIR ?= /usr/lib/sysusers.d
DOCDIR = $(PREFIX)/share/doc/nodeprof
# `replace`: also where there is one already (packages, whose managers ask).
CONFIGURATION ?= keep
PROGRAMS := nodeprof nodeprofd nodeprof-holder
MANDIR = $(PREFIX)/share/man
# Where Debian's zsh looks is not where others do.
ZSHDIR ?= $(PREFIX)/share/zsh/site-functions
COMPLETIONS = bash:$(PREFIX)/share/bash-completion/completions/nodeprof zsh:$(ZSHDIR)/_nodeprof fish:$(PREFIX)/share/fish/vendor_completions.d/nodeprof.fish
# What is written for the default folders names these.
ADAPT = sed -E -e 's,/usr/local,$(PREFIX),g' -e 's,([ =-])/etc/(nodeprof|default)/,\1$(SYSCONFDIR)/\2/,g'

install-files:
	@for program in $(PROGRAMS); do [ -x "$(BINARIES)/$$program" ] || { \
	  echo "make: $(BINARIES)/$$program is not there; type make build first, or make install BINARIES=FOLDER" >&2; exit 1; }; done
	install -d "$(DESTDIR)$(PREFIX)/bin" "$(DESTDIR)$(UNITDIR)" "$(DESTDIR)$(SYSUSERSDIR)" "$(DESTDIR)$(SYSCONFDIR)/nodeprof" "$(DESTDIR)$(SYSCONFDIR)/default"
	for program in $(PROGRAMS); do install -m 755 "$(BINARIES)/$$program" "$(DESTDIR)$(PREFIX)/bin" || exit 1; done
	@# Manual pages and completions are what the programs themselves tell.
	@set -e; made=$$(mktemp -d); trap 'rm -rf -- "$$made"' EXIT; \
	"$(BINARIES)/nodeprof" manual "$$made"; \
	"$(BINARIES)/nodeprofd" --manual >"$$made/nodeprofd.8"; \
	echo '.so man8/nodeprofd.8' >"$$made/nodeprof-holder.8"; \
	for page in "$$made"/*.[18]; do install -D -m 644 "$$page" "$(DESTDIR)$(MANDIR)/man$${page##*.}/$${page##*/}"; done; \
	for completion in $(COMPLETIONS); do \
	  "$(BINARIES)/nodeprof" completions $${completion%%:*} >"$$made/completion"; \
	  install -D -m 644 "$$made/completion" "$(DESTDIR)$${completion#*:}"; done
	for unit in systemd/*.service systemd/*.socket; do $(ADAPT) $$unit | install -m 644 /dev/stdin "$(DESTDIR)$(UNITDIR)/$${unit##*/}" || exit 1; done
	install -m 644 systemd/sysusers.conf "$(DESTDIR)$(SYSUSERSDIR)/nodeprof.conf"
	@# In the tree's own folders: they link to each other.
	for file in README.md LICENSE LICENSE-MIT LICENSE-APACHE systemd/nodeprofd.toml $$(find docs -name '*.md' -o -name '*.webp' -o -name '*.svg' -o -name '*.vl.json'); do \
	  install -D -m 644 $$file "$(DESTDIR)$(DOCDIR)/$$file" || exit 1; done
	@for file in nodeprof/nodeprofd.toml default/nodeprofd; do \
	  source=systemd/nodeprofd.toml; case $$file in default/*) source=systemd/nodeprofd.default ;; esac; \
	  [ "$(CONFIGURATION)" = keep ] && [ -e "$(DESTDIR)$(SYSCONFDIR)/$$file" ] || \
	    $(ADAPT) $$source | install -m 644 /dev/stdin "$(DESTDIR)$(SYSCONFDIR)/$$file" || exit 1; done

deb: build ## build a Debian package of what `make build` has built
	@scripts/deb

uninstall: ## remove what install installed, and end the service; configuration and recordings stay
	@if [ -z "$(DESTDIR)" ] && [ -d /run/systemd/system ]; then systemctl disable --now --quiet nodeprof-expedite.service nodeprof-metrics.service nodeprof-view.service nodeprofd.service nodeprofd.socket nodeprof-holder.socket nodeprof-holder.service || true; fi
	for unit in systemd/*.service systemd/*.socket; do rm -f "$(DESTDIR)$(UNITDIR)/$${unit##*/}"; done
	rm -f "$(DESTDIR)$(SYSUSERSDIR)/nodeprof.conf"
	for program in $(PROGRAMS); do rm -f "$(DESTDIR)$(PREFIX)/bin/$$program"; done
	for completion in $(COMPLETIONS); do rm -f "$(DESTDIR)$${completion#*:}"; done
	rm -f "$(DESTDIR)$(MANDIR)"/man1/nodeprof.1 "$(DESTDIR)$(MANDIR)"/man1/nodeprof-*.1 "$(DESTDIR)$(MANDIR)"/man8/nodeprofd.8 "$(DESTDIR)$(MANDIR)"/man8/nodeprof-holder.8
	rm -rf "$(DESTDIR)$(DOCDIR)"
	@if [ -z "$(DESTDIR)" ] && [ -d /run/systemd/system ]; then systemctl daemon-reload; fi

clean: ## remove what was built; fetched Node.js builds stay
	rm -rf examples/*/node_modules bench/subjects/node_modules cli/tests/isolates/node_modules bench/articles/node_modules flamegraphs/tests/consumers/node_modules flamegraphs/page/node_modules flamegraphs/page/dist/page.html
	rm -f target/nodeprof_*.deb
	@if command -v cargo >/dev/null 2>&1; then cargo clean; else echo "make: cargo not found: what it built stays in $(TARGET)" >&2; fi

%/node_modules/.package-lock.json: %/package-lock.json %/package.json
	@echo "npm ci in $*"
	@cd $* && npm ci --no-audit --no-fund --loglevel=error
	@touch $@
