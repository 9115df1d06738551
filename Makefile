# Thin targets; the work is done by cargo and the scripts under tests/ and packaging/.
SHELL := /bin/bash
SECONDS ?= 60
KEEP ?=

.PHONY: build demo test test-fast sim bench lint crds reference deb rpm clean

build:
	tests/setup.sh build
	cargo build --locked --release --bins

demo: ## three nodes, a client, a Service; a drain and a crash, explained
	@echo "Builds the programs first (about nine minutes on two cores the first time, seconds after that),"
	@echo "then shows them at work for about 40 seconds."
	tests/setup.sh build test
	cargo build --locked --release -p purelbd -p purelbctl -p purelb-allocator -p purelb-demo
	KEEP=$(KEEP) "$${CARGO_TARGET_DIR:-target}/release/purelb-demo"

test: ## everything, with a summary line per suite
	tests/run.sh

test-fast: ## unit, property and simulation tests
	tests/run.sh unit sim

sim: ## more simulated clusters: make sim SECONDS=600
	cargo run --locked --quiet --profile sim -p purelb-sim -- --seconds $(SECONDS)

bench: ## figures beside the plain way, and ratios
	cargo bench --locked -p purelb-core --bench '*'
	cargo bench --locked -p purelb-allocator --bench '*'
	tests/setup.sh build test && tests/controlplane/build.sh
	cargo run --locked --quiet -p purelb-e2e --example figures
	cargo run --locked --quiet --release -p purelb-e2e --example leases
	cargo run --locked --quiet -p purelbd --example lateness

lint:
	tests/run.sh format clippy deny layering

crds: ## deploy/k8s/crds from the Rust types
	cargo run --locked --quiet -p purelb-api --example crds

reference: ## docs/reference from the code
	cargo run --locked --quiet -p purelb-docs
	cargo run --locked --quiet -p purelb-proto --example reference

deb:
	packaging/deb/build.sh

rpm:
	packaging/rpm/build.sh

clean:
	cargo clean
	rm -rf dist
