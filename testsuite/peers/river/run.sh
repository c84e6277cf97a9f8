#!/bin/sh
# Starts a PostgreSQL server of Debian's package postgresql with its defaults in a temporary folder, measures River on it,
# and leaves nothing behind. As root, the server runs as the user postgres. Flags go to the measuring program.
set -eu
cd "$(dirname "$0")"
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
data=$(mktemp -d)
as=""
if [ "$(id -u)" = 0 ]; then
  chown postgres "$data"
  as="setpriv --reuid=postgres --regid=postgres --clear-groups"
fi
stop() {
  $as "$bin/pg_ctl" -D "$data/db" -m fast stop >/dev/null || true
  rm -rf "$data"
}
trap stop EXIT
$as "$bin/initdb" -D "$data/db" -U postgres -A trust >/dev/null
$as "$bin/pg_ctl" -D "$data/db" -w -l "$data/log" -o "-k $data -c listen_addresses=''" start >/dev/null
CGO_ENABLED=0 go run . -database "postgres:///postgres?host=$data&user=postgres" "$@"
