#!/bin/bash
#
# locales.sh - makes locales of the C library in a folder, without a change to the system.
#
#   test/locales.sh FOLDER LOCALE...    makes those that the folder lacks
#   test/locales.sh --list              prints all locales that can be made
#
# A program that has LOCPATH=FOLDER in its environment finds them by these names, and
# the system's C.UTF-8 as well.  Names have the form de_DE.UTF-8 or ca_ES.UTF-8@valencia.
# The locales are compiled, by localedef, from the sources in /usr/share/i18n (Debian's
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

# make_locale FOLDER LOCALE: the folder's programs never see half a locale.
make_locale() {
  local folder=$1 name=$2 base modifier='' scratch
  [ ! -d "$folder/$name" ] || return 0
  base=${name%%.*}
  [[ $name != *@* ]] || modifier=@${name#*@}
  local charmap=${name#*.}
  charmap=${charmap%@*}
  scratch=$folder/.$name.$$
  # localedef also fails if it only has warnings
  localedef -i "$base$modifier" -f "$charmap" "$scratch" >"$scratch.log" 2>&1 || true
  if [ ! -s "$scratch/LC_COLLATE" ]; then
    cat "$scratch.log" >&2
    rm -rf "$scratch" "$scratch.log"
    return 1
  fi
  # another process may have made it meanwhile
  mv -T "$scratch" "$folder/$name" 2>/dev/null || [ -d "$folder/$name" ]
  rm -rf "$scratch" "$scratch.log"
}

folder=$(mkdir -p "$1" && cd "$1" && pwd)
shift
export -f make_locale
printf '%s\n' "$@" | xargs -P "$(nproc)" -I{} bash -euc 'make_locale "$1" "$2"' - "$folder" {}
