#!/usr/bin/env bash
# Builds the documentation site into site/dist, or into CRONCE_SITE. Needs Go, Node.js and npm.
# CRONCE_VERSION names the version that the pages describe (default: main), CRONCE_BASE the path
# under which they will be served (default: /).
set -euo pipefail
cd "$(dirname "$0")"
[ -d node_modules ] || npm install --no-save --no-audit --no-fund
public=$(mktemp -d)
trap 'rm -rf "$public"' EXIT
GOOS=js GOARCH=wasm go build -trimpath -ldflags='-s -w' -o "$public/playground.wasm" ./playground
cp "$(go env GOROOT)/lib/wasm/wasm_exec.js" icon.svg "$public/"
CRONCE_PUBLIC="$public" npm run --silent build
