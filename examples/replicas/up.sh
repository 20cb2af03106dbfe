#!/bin/sh
# A NATS server and three replicas of one service, on one machine: examples/replicas/up.sh
# Ctrl-C ends them. Kill any replica meanwhile: the others go on, at once.
set -eu
cd "$(dirname "$0")"
listen=${LISTEN:-127.0.0.1:4333}
dir=$(mktemp -d)
pids=
down() {
	trap - EXIT INT TERM
	# The server last: the replicas have something to write.
	[ -z "$pids" ] || kill $pids 2>/dev/null || true
	for pid in $pids; do wait "$pid" || true; done
	[ -z "${server:-}" ] || { kill "$server" 2>/dev/null && wait "$server"; } || true
	rm -rf "$dir"
}
trap 'down' EXIT
trap 'down; exit 0' INT TERM

go build -o "$dir/service" .
go build -o "$dir/cronce" ../../cmd/cronce
"$dir/cronce" server --listen "$listen" --store "$dir/store" >"$dir/server.log" 2>&1 &
server=$!
for n in 1 2 3; do
	NATS_URL="nats://$listen" "$dir/service" "replica-$n" &
	pids="$pids $!"
done
wait
