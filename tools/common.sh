# Shared by the scripts of this folder; sourced, not run.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly root

die() {
  printf '%s: %s\n' "$(basename "$0")" "$1" >&2
  exit "${2:-1}"
}

# The comment block at the top of the script that calls this, as help text.
print_usage() { sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0"; }

now_ms() { date +%s%3N; }

# seconds_since MS: "12.3 s"
seconds_since() {
  local ms=$(($(now_ms) - $1))
  printf '%d.%d s' $((ms / 1000)) $((ms % 1000 / 100))
}

# with_lock NAME COMMAND...: runs COMMAND while no other script of this tree holds lock NAME.
with_lock() {
  local name=$1 fd
  shift
  mkdir -p "$root/build"
  exec {fd}>"$root/build/.$name.lock"
  if ! flock --nonblock "$fd"; then
    echo "waiting for another run in this folder ($name)"
    flock "$fd"
  fi
  # Children must not inherit the lock: a daemon of theirs would hold it for ever.
  "$@" {fd}>&-
  exec {fd}>&-
}

configure_and_build() {
  local preset=$1 log
  shift
  log="$root/build/$preset-configure.log"
  cd "$root" || return
  cmake --preset "$preset" >"$log" 2>&1 || { cat "$log" >&2; die "cmake --preset $preset failed"; }
  # What this build goes without.
  grep -E 'without GPU targets|no CPU compiler' "$log" || true
  NINJA_STATUS='[%f/%t %p, %es] ' cmake --build --preset "$preset" --target "$@"
}

# build_preset PRESET TARGET...: configures and builds; ninja prints its progress.
build_preset() {
  with_lock "$1" configure_and_build "$@"
}
