#!/bin/bash
#
# instruments.sh - make test-instruments: runs tests under the sanitizers and under
# valgrind, and fuzzes.
#
#   PARTS="sanitizers fuzz valgrind"   the parts to run; all by default
#   QUICK=yes            the short form of fuzz and valgrind for make test: 20 seconds each, and
#                        the build that is installed
#
# sanitizers
#   gpusort.so is built with AddressSanitizer and UndefinedBehaviorSanitizer, and the
#   distribution's server is started with their runtimes preloaded.  A report, or a
#   process that ends abnormally, is a failure.  The build has the stand-in device, so
#   that both engines are tested.
#
#   AddressSanitizer knows the blocks from malloc: the blocks of memory contexts, and
#   single chunks from 8 kB on, which sort keys and rows are.  It also checks calls of
#   memcpy() and similar functions in the server.
#
#   All TAP tests run in full, two at a time.  They take most of the time of all parts.
#
# fuzz
#   libFuzzer, if clang has it, or random bytes feed test/fuzz/key_fuzz.c, the encoding
#   of keys, for SECONDS_EACH=30 seconds.  It is built with both sanitizers.  An input
#   that fails is shown as base64; to repeat it, write the decoded bytes to a file and
#   give its name to the program as an argument.  Row keys need a server's types, so
#   test/rowkey/random_keys.c makes random values in a server.  It is built in the same
#   way, and a failure is shown with its seed.
#
# valgrind
#   The distribution's server runs test/instruments/valgrind.sql in one process under
#   memcheck.  The script uses each feature of the CPU engine once.  An error is a
#   failure if a function of gpusort is in its stack; see test/instruments/valgrind.supp.
#
# The builds are installed in a copy of the server.  The last line has the counts of
# checks, and the exit status is 0 if none failed.

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=test/cluster.sh
. "$tree/test/cluster.sh"
# shellcheck source=test/suites.sh
. "$tree/test/suites.sh"
# shellcheck source=test/sanitize.sh
. "$tree/test/sanitize.sh"

parts=${PARTS:-sanitizers fuzz valgrind}
quick=${QUICK:-no}
seconds=${SECONDS_EACH:-30}
[ "$quick" != yes ] || seconds=${SECONDS_EACH:-20}

# ---- sanitizers ----

run_sanitizers() {
  local cc="gcc $sanitizer_flags" cxx="g++ $sanitizer_flags"
  say "sanitizers: build"
  copy_tree "$work/sanitized"
  build_and_install "$work/sanitized" WITH_CUDA=standin CC="$cc" CXX="$cxx"

  sanitize_servers
  start_cluster "${server_settings[@]}"
  run_regress "sanitizers: regress"
  run_regress "sanitizers: regress, stand-in device" "-c gpusort.engine=cuda -c gpusort.min_rows=0"
  run_pgtap "sanitizers: properties"
  stop_cluster
  check_reports "sanitizers: regress"
  tap_jobs=2 run_tap "sanitizers: server" "$tree"/test/t/{001,010,020}*.pl
  check_reports "sanitizers: server"
  tap_jobs=2 run_tap "sanitizers: stand-in device" "${standin_tests[@]}"
  check_reports "sanitizers: stand-in device"
  run_tap "sanitizers: limits, stand-in device" "${limits_test[@]}"
  check_reports "sanitizers: limits, stand-in device"
  SETTINGS="gpusort.engine=cuda" run_tap "sanitizers: random queries, stand-in device" "$tree"/test/t/020*.pl
  check_reports "sanitizers: random queries, stand-in device"
  server_environment=()
}

# ---- fuzz ----

fuzz_flags=(-g -O1 -fwrapv -fno-sanitize-recover=all -Wall -Wno-unused-parameter)

# shellcheck disable=SC2054
# Fuzzes the encoding of keys.
fuzz_encoding() {
  local name="fuzz: encoding of keys" target=$work/fuzz fuzz_cc sources
  # a quick run installs nothing
  if [ "$quick" != yes ] && command -v apt-get >/dev/null; then
    apt_install clang || true
  fi
  fuzz_cc=(clang -fsanitize=fuzzer,address,undefined -Wno-ignored-attributes)
  sources=("${fuzz_flags[@]}" -I"$tree/src" -I"$tree/kernels" "$tree/test/fuzz/key_fuzz.c" "$tree/src/key/encode.c" -lm)
  if ! "${fuzz_cc[@]}" -o "$target" "${sources[@]}" >/dev/null 2>&1; then
    fuzz_cc=("${CC:-cc}" -DFUZZ_RANDOM -fsanitize=address,undefined)
  fi
  echo "fuzzing by ${fuzz_cc[0]}, $seconds seconds each"
  if "${fuzz_cc[@]}" -o "$target" "${sources[@]}" >"$work/fuzz.log" 2>&1 &&
    (cd "$work" && "$target" -max_total_time="$seconds" -artifact_prefix="$work/") >"$work/fuzz.log" 2>&1; then
    count "$name" 1 0
  else
    tail -40 "$work/fuzz.log"
    count "$name" 0 1
  fi
}

# Checks row keys of random values in a server without gpusort, by a module.
fuzz_row_keys() {
  local name="fuzz: row keys" module=$work/random_keys.so server_flags
  read -ra server_flags <<<"$("$PG_CONFIG" --cppflags) -I$("$PG_CONFIG" --includedir-server)"
  # shellcheck disable=SC2086
  gcc $sanitizer_flags "${fuzz_flags[@]}" "${server_flags[@]}" -fPIC -shared -Wl,-Bsymbolic -I"$tree/src" -I"$tree/kernels" \
    -o "$module" "$tree"/test/rowkey/*.c "$tree"/src/key/{rowkey,doubt,column_plan,settle,sample_strings,few,encode_values,numeric,text,icu,icu_read,libc,weights,support}.c
  chmod 755 "$module"
  sanitize_servers
  start_cluster
  run_prove "$name" pg_prove -d postgres --set "module=$module" --set "seconds=$seconds" "$tree/test/rowkey/random.sql"
  stop_cluster
  check_reports "$name"
  server_environment=()
}

run_fuzz() {
  fuzz_encoding
  fuzz_row_keys
}

# ---- valgrind ----

# our_errors LOG: prints the errors in valgrind's log that have gpusort in their stack.
our_errors() {
  sed -E 's/^==[0-9]+== ?//' "$1" | awk -v RS= '/^[A-Z].*\n +at / && /gpusort/'
}

run_valgrind() {
  local out=$work/valgrind.out errors
  if command -v apt-get >/dev/null; then
    apt_install valgrind
  fi
  # a quick run takes the build that make test has installed
  if [ "$quick" != yes ]; then
    say "valgrind: build"
    copy_tree "$work/plain"
    build_and_install "$work/plain" WITH_CUDA=no
  fi
  start_cluster "session_preload_libraries = 'gpusort'" "shared_buffers = 16MB"
  stop_cluster
  as_cluster_user valgrind --leak-check=no --num-callers=30 --suppressions=/dev/fd/4 --log-file="$work/valgrind.log" \
    "$bindir/postgres" --single -D "$PGDATA" postgres \
    <"$tree/test/instruments/valgrind.sql" 4<"$tree/test/instruments/valgrind.supp" >"$out" 2>&1 || true

  # the whole script ran if exactly two statements failed
  if [ "$(grep -c 'ERROR:  division by zero' "$out")" = 2 ] && [ "$(grep -c 'ERROR\|FATAL\|PANIC' "$out")" = 2 ] &&
    grep -q 'Custom Scan (GpuSort)' "$out"; then
    count "valgrind: statements" 1 0
  else
    tail -40 "$out"
    count "valgrind: statements" 0 1
  fi
  errors=$(our_errors "$work/valgrind.log")
  if grep -q 'ERROR SUMMARY' "$work/valgrind.log" && [ -z "$errors" ]; then
    count "valgrind: errors" 1 0
  else
    head -100 <<<"$errors"
    count "valgrind: errors" 0 1
  fi
}

install_test_packages
use_server
[[ $quick = yes && $parts = valgrind ]] || use_private_server "$work/server"

for part in $parts; do
  "run_$part"
done

show_sum
