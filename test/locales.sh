#!/bin/bash
#
# locales.sh - makes locales of the C library in a folder, without a change to the system.
#
#   test/locales.sh FOLDER LOCALE...    makes those that the folder lacks
#   test/locales.sh --list              prints all locales that can be made
#
# A program that has LOCPATH=FOLDER in its environment finds them, and the system's
# C.UTF-8 as well.  Names have the form de_DE.UTF-8 or ca_ES.UTF-8@valencia; the folders
# are called de_DE.utf8 and ca_ES.utf8@valencia, so that either form is found.  The locales are compiled, by localedef, from the sources in /usr/share/i18n (Debian's
# package locales), which takes one to two seconds each.
#
# The exit status is 3 if localedef or the sources are missing.

set -euo pipefail

sources=/usr/share/i18n
if ! command -v localedef >/dev/null || [ ! -f "$sources/SUPPORTED" ]; then
  echo "localedef or $sources/SUPPORTED is missing; install Debian's package locales" >&2
  exit 3
fi

if [ "$1" = --list ]; then
  # the lines are "de_DE.UTF-8 UTF-8", "de_DE ISO-8859-1" or "ca_ES@valencia UTF-8"
  sed -nE 's/^([A-Za-z_]+)(\.[^@ ]+)?(@[a-z]+)? +(\S+)$/\1.\4\3/p' "$sources/SUPPORTED" | grep -v '^C\.'
  exit
fi

# make_locale FOLDER LOCALE
make_locale() {
  local language=${2%%.*} charmap=${2#*.} modifier='' made scratch
  if [[ $charmap = *@* ]]; then
    modifier=@${charmap#*@}
    charmap=${charmap%@*}
  fi
  made=$language.$(tr -cd '[:alnum:]' <<<"${charmap,,}")$modifier
  [ ! -d "$1/$made" ] || return 0
  scratch=$1/.$made.$$
  # localedef fails for warnings, too
  localedef -i "$language$modifier" -f "$charmap" "$scratch" >"$scratch.log" 2>&1 || true
  if [ ! -s "$scratch/LC_COLLATE" ]; then
    cat "$scratch.log" >&2
    return 1
  fi
  # another process may have made it meanwhile
  mv -T "$scratch" "$1/$made" 2>/dev/null || [ -d "$1/$made" ]
  rm -rf "$scratch" "$scratch.log"
}

folder=$(mkdir -p "$1" && cd "$1" && pwd)
shift
export -f make_locale
printf '%s\n' "$@" | xargs -P "$(nproc)" -I{} bash -euc 'make_locale "$1" "$2"' - "$folder" {}
