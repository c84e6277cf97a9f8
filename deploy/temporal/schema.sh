#!/bin/sh
# Makes Temporal's two databases, or brings their schemas up to the version of this image. It may run again.
set -eu
for database in temporal temporal_visibility; do
  folder=temporal
  [ "$database" = temporal ] || folder=visibility
  temporal-sql-tool --db "$database" create || true # it is there
  temporal-sql-tool --db "$database" setup-schema -v 0.0 || true
  temporal-sql-tool --db "$database" update-schema -d "/etc/temporal/schema/postgresql/v12/$folder/versioned"
done
