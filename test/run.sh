#!/bin/bash
#
# run.sh - make test: installs what is missing, builds, runs all tests.
#
# Two builds are tested.  The first has a stand-in for the device, a CPU that
# answers in its place, and faults on demand (src/base/fault.c), so that the GPU
# service, the chunk pool and every failure are tested on any machine.  The second is the real one:
# whatever WITH_CUDA finds.  Where a GPU answers, the suites run once more on
# it, against the same expected results.
#
# Each group counts its tests; the last line is the sum.

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=test/cluster.sh
. "$tree/test/cluster.sh"
# shellcheck source=test/suites.sh
. "$tree/test/suites.sh"

# Row keys, by a module of its own, made of the objects that were built last.
run_rowkey() {
  local module=$work/gpusort_rowkey_test database
  "${CC:-cc}" -O2 -Wall -Wextra -Werror -Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers \
    -fPIC -shared -Wl,-Bsymbolic -I"$tree/src" -I"$tree/kernels" -I"$("$PG_CONFIG" --includedir-server)" \
    -o "$module.so" "$tree/test/rowkey/rowkey_test.c" "$tree"/src/key/{rowkey,column,fixed,text,numeric,icu,icu_read}.o
  psql -qXc 'CREATE DATABASE gpusort_rowkey' \
    -c "CREATE DATABASE gpusort_rowkey_c TEMPLATE template0 LOCALE 'C'" \
    -c "CREATE DATABASE gpusort_rowkey_icu TEMPLATE template0 LOCALE 'C' LOCALE_PROVIDER icu ICU_LOCALE 'en'"
  run_prove "$1" pg_prove -d gpusort_rowkey --set "module=$module" "$tree/test/rowkey/rowkey.sql"
  for database in gpusort_rowkey:libc gpusort_rowkey_c:bytes gpusort_rowkey_icu:icu; do
    run_prove "$1, default collation by ${database#*:}" pg_prove -d "${database%:*}" --set "module=$module" \
      --set "comparer=${database#*:}" "$tree/test/rowkey/default_collation.sql"
  done
}

# Builds what is tested from inside a backend, as a module that
# GPUSORT_TEST_MODULE names.  -Bsymbolic: it calls its own copy of the code,
# not that of a gpusort.so that is loaded, too.
build_test_module() {
  local flags
  read -ra flags <<<"$("$PG_CONFIG" --cppflags)"
  export GPUSORT_TEST_MODULE=$work/spill_test.so
  "${CC:-cc}" -O2 -g -Wall -Wextra -Werror -Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers \
    -fPIC -shared -Wl,-Bsymbolic "${flags[@]}" -I"$("$PG_CONFIG" --includedir-server)" -I"$tree/src" -I"$tree/kernels" \
    -o "$GPUSORT_TEST_MODULE" "$tree"/test/spill/*.c "$tree"/src/store/{spill,spill_merge,spill_file}.c "$tree"/src/base/{memory,large_memory,huge_page,shmem}.c
}

# Builds the driver that says no, and one without an entry point, in a folder
# that GPUSORT_FAKE_DRIVER names.
build_fake_driver() {
  export GPUSORT_FAKE_DRIVER=$work/fakedriver
  mkdir -p "$GPUSORT_FAKE_DRIVER/empty"
  "${CC:-cc}" -O2 -Wall -Wextra -Werror -fPIC -shared -o "$GPUSORT_FAKE_DRIVER/libcuda.so.1" "$tree/test/fakedriver/libcuda.c"
  "${CC:-cc}" -shared -o "$GPUSORT_FAKE_DRIVER/empty/libcuda.so.1" -x c /dev/null
}

# The same for what plays a backend whose requests to the service are damaged.
build_damage_module() {
  local flags
  read -ra flags <<<"$("$PG_CONFIG" --cppflags)"
  export GPUSORT_DAMAGE_MODULE=$work/damage_test.so
  "${CC:-cc}" -O2 -g -Wall -Wextra -Werror -Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers \
    -fPIC -shared -Wl,-Bsymbolic "${flags[@]}" -DUSE_CUDA -DGPUSORT_FAULTS -I"$("$PG_CONFIG" --includedir-server)" \
    -I"$tree/src" -I"$tree/kernels" -o "$GPUSORT_DAMAGE_MODULE" "$tree"/test/damage/*.c "$tree"/src/gpu/{pool,control}.c "$tree"/src/base/shmem.c
}

# A part of test/instruments.sh, shortened.
run_instrument() {
  local rc=0 last
  QUICK=yes PARTS=$2 bash "$tree/test/instruments.sh" >"$work/instruments.log" 2>&1 || rc=$?
  last=$(tail -1 "$work/instruments.log")
  [ "$rc" = 0 ] || tail -150 "$work/instruments.log"
  if [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
    count "$1" "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"
  else
    count "$1" 0 1
  fi
}

# PostgreSQL's own suite, with gpusort in the place of its sorts.
run_core() {
  local rc=0 counts
  PRELOAD=gpusort SUITE=core CONF="gpusort.force=on gpusort.min_rows=0" \
    bash "$tree/test/check-core.sh" >"$work/core.log" 2>&1 || rc=$?
  read -ra counts <<<"$(grep -E '^passed [0-9]+ failed [0-9]+$' "$work/core.log")"
  if [ "$rc" = 0 ]; then
    count "$1" "${counts[1]}" "${counts[3]}"
  elif [ "$rc" = 3 ]; then
    say "skipped: $1"
    tail -1 "$work/core.log"
  else
    grep -vE '^ +[a-z0-9_.]+ +[A-Z]+=' "$work/core.log" | tail -100
    count "$1" "${counts[1]:-0}" "$((${counts[3]:-0} + (${counts[3]:-0} == 0)))"
  fi
}

have_gpu() {
  [ "$(psql -qXtAc "SELECT available FROM gpusort_status() WHERE engine = 'cuda'" gpusort_pgtap)" = t ]
}

server_settings=("shared_buffers = 512MB" "work_mem = 1GB" "max_connections = 120")

install_packages
major=$(server_major)
if command -v apt-get >/dev/null; then
  apt_install "postgresql-$major-pgtap" libtap-parser-sourcehandler-pgtap-perl libipc-run-perl procps
fi
use_server
pgxs=$(dirname "$("$PG_CONFIG" --pgxs)")/..
say "$("$PG_CONFIG" --version)"

say "build with a stand-in for the device"
mkdir "$work/standin"
tar -C "$tree" -c --exclude='*.[od]' --exclude='*.so' --exclude=.git --exclude=./build --exclude='./.*' . | tar -C "$work/standin" -x
build_and_install "$work/standin" WITH_CUDA=standin
start_cluster "${server_settings[@]}"
run_regress "regress, stand-in device" "-c gpusort.engine=cuda -c gpusort.min_rows=0"
stop_cluster
tap_jobs=2 run_tap "stand-in device" "${standin_tests[@]}" "$tree"/test/t/013*.pl
run_tap "limits, stand-in device" "${limits_test[@]}"
run_unit "load, stand-in device" env BUILD=no DURATION=10 CLIENTS=20 POOL=512MB FAIR=0 bash "$tree/test/load.sh"
build_damage_module
run_tap "damaged requests, stand-in device" "$tree"/test/damage/*.pl
SETTINGS="gpusort.engine=cuda" CASES=150 run_tap "random queries, stand-in device" "$tree"/test/t/020*.pl
SETTINGS="gpusort.engine=cuda" RUNS=200 run_tap "leaks, stand-in device" "$tree"/test/t/018*.pl

say "build"
build_and_install "$tree"

run_unit "floors and circles" perl "$tree/test/layers.pl" "$tree"
run_unit "key encoding" bash -c "
  ${CC:-cc} -O2 -Wall -Wextra -Werror -I'$tree/src' -I'$tree/kernels' -o '$work/keybits_test' '$tree/test/unit/keybits_test.c' -lm &&
  '$work/keybits_test'"
run_unit "CPU engine" bash -c "
  ${CC:-cc} -O2 -Wall -Wextra -Werror -I'$tree/src' -I'$tree/kernels' -o '$work/engine_cpu_test' '$tree/test/unit/engine_cpu_test.c' \
    '$tree/src/key/encode.c' '$tree'/src/base/{large_memory,huge_page}.c '$tree/src/cpu/cpu.o' '$tree/src/cpu/words.o' -lhwy_contrib -lhwy -lstdc++ -lpthread -lm &&
  '$work/engine_cpu_test'"
run_unit "large buffers" bash -c "
  ${CC:-cc} -O2 -Wall -Wextra -Werror -I'$tree/src' -I'$tree/kernels' -o '$work/large_memory_test' '$tree/test/unit/large_memory_test.c' \
    '$tree'/src/base/{large_memory,huge_page}.c -lpthread && '$work/large_memory_test'"
run_unit "large buffers, guarded" bash -c "
  ${CC:-cc} -O1 -g -fsanitize=address,undefined -fno-sanitize-recover -Wall -Wextra -Werror -I'$tree/src' -I'$tree/kernels' -o '$work/large_memory_test' \
    '$tree/test/unit/large_memory_test.c' '$tree'/src/base/{large_memory,huge_page}.c -lpthread && '$work/large_memory_test'"
run_unit "cuts of sorted runs" bash -c "
  ${CXX:-c++} -std=c++17 -O2 -Wall -Wextra -Werror -I'$tree/kernels' -o '$work/merge_path_test' \
    '$tree/test/unit/merge_path_test.cc' && '$work/merge_path_test'"
run_unit "levels of several words" bash -c "
  ${CXX:-c++} -std=c++17 -O2 -Wall -Wextra -Werror -I'$tree/kernels' -o '$work/word_plan_test' \
    '$tree/test/unit/word_plan_test.cc' && '$work/word_plan_test'"

run_unit "keys to merge by" bash -c "
  ${CC:-cc} -O2 -Wall -Wextra -Werror -I'$tree/kernels' -o '$work/merge_key_test' '$tree/test/unit/merge_key_test.c' &&
  '$work/merge_key_test'"

run_unit "merge of pieces" bash -c "
  ${CC:-cc} -O2 -Wall -Wextra -Werror -I'$tree/src' -I'$tree/kernels' -o '$work/engine_cpu_merge_test' '$tree/test/unit/engine_cpu_merge_test.c' \
    '$tree'/src/base/{large_memory,huge_page}.c '$tree'/src/cpu/merge{,_words}.o -lstdc++ -lpthread &&
  '$work/engine_cpu_merge_test'"

run_unit "tree of losers" bash -c "
  ${CC:-cc} -O2 -Wall -Wextra -Werror -I'$tree/src' -I'$tree/kernels' -o '$work/losertree_test' '$tree/test/unit/losertree_test.c' &&
  '$work/losertree_test'"

start_cluster "${server_settings[@]}"
run_regress "regress"
run_pgtap "properties"
run_rowkey "row keys"
if have_gpu; then
  run_pgtap "properties, on the GPU" "-c gpusort.engine=cuda -c gpusort.min_rows=0"
  for algorithm in auto mppsort quicksort mergesort radixsort cub; do
    run_regress "regress, on the GPU, $algorithm" \
      "-c gpusort.engine=cuda -c gpusort.min_rows=0 -c gpusort.algorithm=$algorithm"
  done
fi
stop_cluster
if [ -f "$tree/kernels/sort.o" ]; then
  say "kernel tests and benchmark are built; the tests run where there is a GPU"
  make -C "$tree" -s test/kernels/kernel_test bench/bench_gpu
  if command -v nvidia-smi >/dev/null && nvidia-smi >/dev/null 2>&1; then
    run_unit "kernels" "$tree/test/kernels/kernel_test" --quick --lane --random 1000
  fi
fi
tap_jobs=2 run_tap "server" "$tree"/test/t/{001,010,012,013,014,017}*.pl
if grep -qa 'libcuda\.so\.1' "$tree/gpusort.so"; then
  build_fake_driver
  run_tap "drivers without a device" "$tree"/test/t/015*.pl
else
  say "skipped, for a build without CUDA: drivers without a device"
fi
build_test_module
run_tap "spill and activity" "$tree"/test/spill/*.pl
run_tap "random queries" "$tree"/test/t/020*.pl
run_tap "leaks" "$tree"/test/t/018*.pl
run_instrument "sanitizers" sanitizers
run_instrument "fuzzing" fuzz
run_instrument "valgrind" valgrind
run_core "PostgreSQL's own suite"

say "$( ((failed == 0)) && echo "all passed" || echo "some failed")"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
