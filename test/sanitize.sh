# shellcheck shell=bash
#
# sanitize.sh - servers with AddressSanitizer and UndefinedBehaviorSanitizer, for
# instruments.sh and soak.sh.
#
# Source it after suites.sh.  Only gpusort is built with the sanitizers; the server is
# started with their runtimes preloaded.
#
# These checks are off:
# detect_leaks         the server frees nothing when it ends; see test/t/018_leaks.pl
# detect_stack_use_after_return, use_sigaltstack    check_stack_depth() measures
#                      the real stack, and child processes inherit theirs by fork
# vptr                 needs type information, and the C++ files are built without it
# signed overflow      is defined in C, because PostgreSQL's flags have -fwrapv

# check_reports NAME: counts a check that there is no report and no crash.  Reports are
# in files, and those of UndefinedBehaviorSanitizer in the server's log.  The signals
# are those of crashes, failed assertions among them; tests end processes with other signals.
check_reports() {
  local logs=("$work/server.log") found
  [ ! -d "$work/check/tmp_check" ] || logs+=("$work"/check/tmp_check/log/*.log)
  found=$(
    find "$work/reports" -type f -exec head -n 60 {} + 2>/dev/null
    grep -shE -A 20 'runtime error: |TRAP: |PANIC: ' "${logs[@]}"
    grep -shE -A 10 'was terminated by signal (4|6|7|8|11)\b' "${logs[@]}"
  ) || true
  rm -f "$work"/reports/*
  if [ -z "$found" ]; then
    count "$1, reports" 1 0
  else
    head -n 100 <<<"$found"
    count "$1, reports" 0 1
  fi
}

sanitizer_flags="-fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=all"

# Makes servers that start from now on preload the sanitizers' runtimes, and write their
# reports to $work/reports.
sanitize_servers() {
  local runtime=() options library
  mkdir -p "$work/reports"
  chmod 777 "$work/reports"
  for library in libasan libubsan; do
    runtime+=("$(readlink -f "$(gcc -print-file-name=$library.so)")")
  done
  options="log_path=$work/reports/report:abort_on_error=1:halt_on_error=1:print_stacktrace=1"
  "${CC:-cc}" -O2 -Wall -Wextra -Werror -shared -fPIC -o "$work/demangle.so" "$tree/test/instruments/demangle.c"
  chmod 755 "$work/demangle.so"
  runtime+=("$work/demangle.so")
  server_environment=(
    "LD_PRELOAD=${runtime[*]}"
    "ASAN_OPTIONS=$options:detect_leaks=0:detect_stack_use_after_return=0:use_sigaltstack=0"
    "UBSAN_OPTIONS=$options")
}
