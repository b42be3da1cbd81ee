#!/bin/bash
#
# private_server.sh - makes a copy of a server that tests can install into.
#
#   PG_CONFIG=... private_server.sh FOLDER
#
# A server's programs find libraries and extension scripts by their own place.  So the
# programs are copied to FOLDER, and everything else there is links to what is
# installed, among which tests put their own files.  The folders below FOLDER have the
# names of the installed ones, as "make install DESTDIR=FOLDER" wants it.  Prints the
# path of the copy's pg_config.

set -euo pipefail

root=$1
config=$(command -v "${PG_CONFIG:-pg_config}")
bindir=$("$config" --bindir)
sharedir=$("$config" --sharedir)
libdir=$("$config" --pkglibdir)
include=$("$config" --pkgincludedir)

# link_all FOLDER [NAME...]: links everything in a folder but these.
link_all() {
  local folder=$1 name except=()
  shift
  for name; do except+=(! -name "$name"); done
  mkdir -p "$root$folder"
  find "$folder" -mindepth 1 -maxdepth 1 "${except[@]}" -exec ln -s -t "$root$folder" {} +
}

programs=(initdb pg_config pg_ctl postgres)
link_all "$bindir" "${programs[@]}"
cp -L "${programs[@]/#/$bindir/}" "$root$bindir"
link_all "$sharedir" extension
link_all "$sharedir/extension"
link_all "$libdir"
link_all "$include"
echo "$root$bindir/pg_config"
