#!/bin/sh
# Makes the namespace of Mainstay unless it is there.
set -eu
until temporal operator cluster health; do sleep 2; done
temporal operator namespace describe --namespace default ||
  temporal operator namespace create --namespace default --retention "${TEMPORAL_RETENTION:-168h}"
