#!/usr/bin/env bash
# Installs and starts the servers that the peers need (PostgreSQL and Redis from the
# distribution's packages, nats-server as this module has it), on ports and files of
# their own, has them all do the same work, and ends them. As root it installs what is
# missing; else it says what is.
#
#   integration/bench/run.sh                 prints a line for each
#   integration/bench/run.sh -docs ../../docs   and writes the table and the plot
set -euo pipefail
cd "$(dirname "$0")"
work=$(mktemp -d)
pids=()
finish() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait
  rm -rf "$work"
}
trap finish EXIT

pgbin() { find /usr/lib/postgresql -name initdb -printf '%h\n' 2>/dev/null | sort -V | tail -1; }
if [ -z "$(pgbin)" ] || ! command -v redis-server >/dev/null; then
  if [ "$(id -u)" != 0 ]; then
    echo "needs the packages postgresql and redis-server" >&2
    exit 1
  fi
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y postgresql redis-server >&2
fi
pg=$(pgbin)
go build -o "$work/nats-server" github.com/nats-io/nats-server/v2
go build -o "$work/bench" .

# PostgreSQL does not run as root.
as=()
if [ "$(id -u)" = 0 ]; then
  as=(runuser -u postgres --)
  chmod 755 "$work"
fi
mkdir "$work/pg"
[ "$(id -u)" != 0 ] || chown postgres "$work/pg"
(cd / && "${as[@]}" "$pg/initdb" -D "$work/pg/data" -U bench -A trust >/dev/null)
(cd / && exec "${as[@]}" "$pg/postgres" -D "$work/pg/data" -h 127.0.0.1 -p 15432 -k "$work/pg" >"$work/pg.log" 2>&1) &
pids+=($!)
redis-server --port 16379 --bind 127.0.0.1 --dir "$work" --appendonly yes --appendfsync everysec >"$work/redis.log" 2>&1 &
pids+=($!)
mkdir "$work/redis-synced"
redis-server --port 16380 --bind 127.0.0.1 --dir "$work/redis-synced" --appendonly yes --appendfsync always >"$work/redis-synced.log" 2>&1 &
pids+=($!)
"$work/nats-server" -js -sd "$work/nats" -a 127.0.0.1 -p 14222 >"$work/nats.log" 2>&1 &
pids+=($!)
printf 'jetstream { store_dir: "%s/synced", sync_interval: always }\n' "$work" >"$work/synced.conf"
"$work/nats-server" -c "$work/synced.conf" -a 127.0.0.1 -p 14223 >"$work/synced.log" 2>&1 &
pids+=($!)
for port in 15432 16379 16380 14222 14223; do
  for _ in $(seq 100); do
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then continue 2; fi
    sleep 0.1
  done
  echo "nothing answers on port $port" >&2
  exit 1
done

{
  echo "- Machine: $(nproc) cores ($(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)), $(free -g | awk '/^Mem/{print $2}') GB, $(uname -sr); load before: $(cut -d' ' -f1-3 /proc/loadavg)"
  echo "- $("$pg/postgres" --version); $(redis-server --version | cut -d' ' -f1-3); $("$work/nats-server" --version); $(go version | cut -d' ' -f3)"
  go list -m -f '- {{.Path}} {{.Version}}' github.com/riverqueue/river github.com/hibiken/asynq github.com/nats-io/nats.go
  echo "- Command: \`integration/bench/run.sh $*\`, on $(date -u +%F)"
} >"$work/about"
"$work/bench" -postgres 'postgres://bench@127.0.0.1:15432/postgres' -redis 127.0.0.1:16379 -redis-sync 127.0.0.1:16380 -nats nats://127.0.0.1:14222 \
  -nats-sync nats://127.0.0.1:14223 -about "$work/about" "$@"
