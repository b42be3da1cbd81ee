#!/bin/bash
#
# arm.sh - make test-arm: builds for 64-bit Arm with warnings as errors, and runs tests
# under emulation (qemu-user).
#
#   PARTS="unit regress"    the parts to run; both by default
#
# unit      the unit tests.  Emulation is 10 to 50 times as slow as the processor, so
#           cpu_test and cpu_words_test run in a short form.  Those that qemu cannot run are skipped by name.
# regress   the SQL suite, with an emulated PostgreSQL, of the build with WITH_CUDA=no and
#           of the stand-in's.
#
# The compiler and qemu are the distribution's packages, which are installed.  The arm64
# packages of PostgreSQL and what it needs are not: they are downloaded, 100 MB, by an
# apt configuration of its own, and unpacked in a temporary folder of 500 MB.  The
# machine's apt and dpkg know nothing of the architecture.
#
# Emulation shows differences of instructions and types (plain char is unsigned on Arm),
# and how compilers fuse multiplication and addition.  It shows neither the order in which
# processors see each other's writes nor pages of another size than the machine's.
#
# The last line has the counts, and the exit status is 0 if nothing failed.

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=test/cluster.sh
. "$tree/test/cluster.sh"
# shellcheck source=test/suites.sh
. "$tree/test/suites.sh"

# a PG_CONFIG of the make that called this script would win over the one for Arm
unset MAKEFLAGS MAKEOVERRIDES MFLAGS
parts=${PARTS:-unit regress}
root=$work/root
emulate=(qemu-aarch64-static -L "$root")
compilers=(CC="aarch64-linux-gnu-gcc -isystem $root/usr/include" CXX="aarch64-linux-gnu-g++ -isystem $root/usr/include")

# Unpacks the arm64 packages of this PostgreSQL and of what the build needs in $root.
unpack_packages() {
  local apt=$work/apt packages
  mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/packages" "$root"
  : >"$apt/status"
  cat >"$apt/apt.conf" <<END
APT::Architecture "arm64";
APT::Architectures "arm64";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Dir::State "$apt";
Dir::State::Lists "$apt/lists";
Dir::State::Status "$apt/status";
Dir::Cache "$apt/cache";
END
  (
    export APT_CONFIG=$apt/apt.conf
    # a source without arm64 gives a warning; the other packages are without what they
    # depend on, which is for compilers that run on Arm
    # shellcheck disable=SC2086
    cd "$apt/packages" && apt-get update -q &&
      packages=$(apt-get install -s "postgresql-$1" | sed -n 's/^Inst \([^ ]*\).*/\1/p') && [ -n "$packages" ] &&
      apt-get download -q $packages "postgresql-server-dev-$1" libicu-dev libhwy-dev &&
      for package in *.deb; do
        dpkg-deb -x "$package" "$root" || exit 1
      done
  ) >"$work/apt.log" 2>&1 || { tail -20 "$work/apt.log"; return 1; }
}

# Puts a script that emulates it in the place of each program of PostgreSQL in $root.
# The programs call each other, and find their files by the path of the script.
wrap_programs() {
  local folder=$root/usr/lib/postgresql/$1 program
  for program in "$folder"/bin/* "$folder/lib/pgxs/src/test/regress/pg_regress"; do
    [ "$(head -c 4 "$program" | tail -c 3)" = ELF ] || continue
    mv "$program" "$program.arm"
    printf '#!/bin/sh\nexec %s -0 %s %s.arm "$@"\n' "${emulate[*]}" "$program" "$program" >"$program"
    chmod 755 "$program"
  done
}

# run_emulated UNIT_TEST [ARGUMENT]
run_emulated() {
  run_unit "$1" "${emulate[@]}" "$work/no/build/unit/$1" "${@:2}"
}

test_unit() {
  local programs program
  mapfile -t programs < <(sed -n '/^UNIT_TESTS/,/[^\\]$/p' "$tree/test/unit/unit.mk" | grep -oE '[a-z_]+_test')
  make -C "$work/no" -s -j"$(nproc)" "${compilers[@]}" "${programs[@]/#/build/unit/}"
  for program in "${programs[@]}"; do
    case $program in
      # qemu keeps 0.3 MB of each thread that has ended: merge_test's would take 20 GB
      merge_test) say "skipped: $program, which starts too many threads for qemu" ;;
      large_memory_*) say "skipped: $program, since qemu has neither RLIMIT_AS nor MADV_FREE" ;;
      cpu_test | cpu_words_test) run_emulated "$program" 100003 ;;
      cpu_stops_test) say "skipped: $program, whose inputs are too large for qemu" ;;
      *) run_emulated "$program" ;;
    esac
  done
}

test_regress() {
  local kind
  for kind in standin no; do
    make -C "$work/$kind" -s install WITH_CUDA=$kind "${compilers[@]}" >/dev/null
    start_cluster "${server_settings[@]}"
    run_regress "regress, WITH_CUDA=$kind" "$([ $kind = no ] || echo "-c gpusort.engine=cuda -c gpusort.min_rows=0")"
    stop_cluster
  done
}

install_packages
apt_install g++-aarch64-linux-gnu qemu-user-static
major=$(server_major)

say "the arm64 packages of PostgreSQL $major"
unpack_packages "$major"
wrap_programs "$major"
export PG_CONFIG=$root/usr/lib/postgresql/$major/bin/pg_config
use_server
say "$("$PG_CONFIG" --version)"

for kind in standin no; do
  say "build WITH_CUDA=$kind"
  copy_tree "$work/$kind"
  make -C "$work/$kind" -s -j"$(nproc)" WERROR=1 WITH_CUDA=$kind "${compilers[@]}"
done
for part in $parts; do
  "test_$part"
done

show_sum
