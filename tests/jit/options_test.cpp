#include "jit/options.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <string>

using namespace laya;
using namespace laya::jit;

namespace {

/// Sets a variable for the life of a scope.
class Env {
 public:
  Env(const char* name, const char* value) : name_(name) {
    if (const char* old = getenv(name)) old_ = old, had_ = true;
    setenv(name, value, 1);
  }
  ~Env() { had_ ? setenv(name_, old_.c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::string old_;
  bool had_ = false;
};

void check_refused(const char* name, const char* value) {
  CAPTURE(value);
  const Env env(name, value);
  const auto options = options_from_environment();
  REQUIRE_FALSE(options);
  CHECK(options.error().kind == ErrorKind::kBadInput);
  CHECK(options.error().message.find(name) != std::string::npos);
  CHECK(options.error().message.find(value) != std::string::npos);
}

}  // namespace

TEST_CASE("options are read from the environment") {
  const Env dir("LAYA_CACHE_DIR", "/some where/cache");
  const Env layers("LAYA_CACHE_LAYERS", "/a:/b c::");
  const Env bytes("LAYA_CACHE_MAX_BYTES", "3MiB");
  const Env mode("LAYA_JIT", "never");
  const Env copy("LAYA_CACHE_COPY", "yes");
  const Env wait("LAYA_JIT_WAIT", "90");
  const Env jobs("LAYA_JIT_JOBS", "3");
  const Env threads("LAYA_CPU_THREADS", "5");
  const Env pin("LAYA_CPU_PIN", "yes");
  const Env templates("LAYA_TEMPLATE_DIR", "/t");
  const Env level("LAYA_LOG", "debug");
  const auto options = options_from_environment();
  REQUIRE(options);
  CHECK(options->cache_dir == "/some where/cache");
  CHECK(options->cache_layers == std::vector<std::filesystem::path>{"/a", "/b c"});
  CHECK(options->cache_max_bytes == 3 << 20);
  CHECK(options->jit == JitMode::kNever);
  CHECK(options->copy_layer_hits);
  CHECK(options->build_wait == std::chrono::seconds(90));
  CHECK(options->jobs == 3);
  CHECK(options->cpu_threads.count == 5);
  CHECK(options->cpu_threads.are_pinned);
  CHECK_FALSE(options->cpu_threads.executor);
  CHECK(options->template_dir == "/t");
  CHECK(options->log_level == LogLevel::kDebug);
}

TEST_CASE("an empty variable is the same as an unset one") {
  const Env bytes("LAYA_CACHE_MAX_BYTES", "");
  const Env mode("LAYA_JIT", "");
  const auto options = options_from_environment();
  REQUIRE(options);
  CHECK(options->cache_max_bytes == int64_t{2} << 30);
  CHECK(options->jit == JitMode::kAuto);
  CHECK(options->cpu_threads.count == 0);
  CHECK_FALSE(options->cpu_threads.are_pinned);
}

TEST_CASE("an illegal value is named with its variable") {
  for (const char* value : {"x", "-1", "1TB", "9999999999GiB", "1.5GiB", "1 GiB"}) {
    check_refused("LAYA_CACHE_MAX_BYTES", value);
  }
  check_refused("LAYA_JIT", "sometimes");
  check_refused("LAYA_JIT_JOBS", "two");
  check_refused("LAYA_CPU_THREADS", "-2");
  check_refused("LAYA_CPU_PIN", "1");
  check_refused("LAYA_LOG", "loud");
}

TEST_CASE("the table names every variable once") {
  for (const OptionInfo& row : option_table()) {
    int count = 0;
    for (const OptionInfo& other : option_table()) {
      count += std::string(row.variable) == other.variable;
    }
    CHECK(count == 1);
  }
}
