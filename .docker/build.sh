#!/bin/bash
#
# build.sh - the steps of the Dockerfile: builds gpusort for the image's PostgreSQL.
#
#   PG_MAJOR=18 .docker/build.sh SOURCE PACKAGE [VARIABLE=VALUE...]
#
# Installs what the build needs from the repositories of the image, builds in the
# folder SOURCE with these arguments of make, and installs below the folder PACKAGE
# what belongs below / in the final image.  Runs as root on Debian or Ubuntu.

set -euo pipefail
source=$1 package=$2
shift 2

export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -y -q --no-install-recommends \
  g++ libc6-dev libhwy-dev libicu-dev make "postgresql-server-dev-$PG_MAJOR"

export PG_CONFIG=/usr/lib/postgresql/$PG_MAJOR/bin/pg_config
make -C "$source" -j"$(nproc)" "$@"
make -C "$source" install DESTDIR="$package"
