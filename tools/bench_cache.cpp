// `laya bench cache`: what the artifact store costs: a hit with the store open and from process
// start, its file in memory and not, its parts, a store, many processes at once, and who compiles
// when they all start together.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "cache/codec.h"
#include "cache/store.h"
#include "jit/engine.h"
#include "tools/bench.h"
#include "tools/console.h"
#include "tools/progress.h"
#include "tools/targets.h"
#include "tools/temp_directory.h"

namespace laya::tools {
namespace {

struct BenchCacheArgs {
  std::vector<int64_t> entries = {100, 10'000};
  int64_t artifact_bytes = 50'000;
  int processes = 16;
  int keys = 14;
  int repeat = 3;
  std::string target = "native";
  bool json = false;
};

constexpr int kHits = 4000;        // finds that a percentile is taken of
constexpr int kStartupReads = 30;  // kernels that a new process reads
constexpr int kStarts = 20;        // new processes
constexpr char kProducer[] = "bench";

double microseconds_of(const std::function<void()>& work) {
  return time_of(work) * 1e6;
}

/// Records as large and as different as an engine's: the key text is that of a real kernel.
class Records {
 public:
  Records(cache::Key key, int64_t artifact_bytes)
      : key_(std::move(key)), artifact_(static_cast<size_t>(artifact_bytes), '\0') {
    std::mt19937_64 random(1);
    for (char& byte : artifact_) byte = static_cast<char>(random());
  }

  cache::Key key(int64_t number) const {
    cache::KeyBuilder key;
    key.field("number", number).field("own", key_.own());
    key.common_from_here().field("common", key_.common());
    return std::move(key).finish();
  }

  cache::Record record(int64_t number) const {
    cache::Record record{kProducer, artifact_, R"({"kernel":"bench"})"};
    const std::string digits = std::to_string(number);
    std::copy_n(digits.begin(), std::min(digits.size(), record.artifact.size()),
                record.artifact.begin());
    return record;
  }

 private:
  cache::Key key_;
  std::string artifact_;
};

/// Runs `body` in a forked process and returns the numbers that it returns; empty if it failed.
class Child {
 public:
  template <class Body>
  static Result<Child> start(Body body) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return failure("pipe");
    const pid_t pid = ::fork();
    if (pid < 0) return failure("fork");
    if (pid == 0) {
      ::close(ends[0]);
      const std::array<double, 2> numbers = body();
      const bool sent = ::write(ends[1], numbers.data(), sizeof numbers) == sizeof numbers;
      ::_exit(sent ? 0 : 1);
    }
    ::close(ends[1]);
    return Child(pid, ends[0]);
  }

  Result<std::array<double, 2>> finish() const {
    std::array<double, 2> numbers{};
    const bool received = ::read(end_, numbers.data(), sizeof numbers) == sizeof numbers;
    ::close(end_);
    ::waitpid(pid_, nullptr, 0);
    if (!received) return fail(ErrorKind::kInternal, "a measuring process died");
    return numbers;
  }

  /// Ends the process at once, as a crash would.
  void kill() const {
    ::kill(pid_, SIGKILL);
    ::close(end_);
    ::waitpid(pid_, nullptr, 0);
  }

 private:
  Child(pid_t pid, int end) : pid_(pid), end_(end) {}

  static tl::unexpected<Error> failure(const char* what) {
    return fail(ErrorKind::kUnavailable,
                std::string(what) + ": " + std::generic_category().message(errno));
  }

  pid_t pid_;
  int end_;
};

/// Calls visit(descriptor) for each file, with nothing left to be written.
void for_each_file(const std::filesystem::path& directory, const std::function<void(int)>& visit) {
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const int fd = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    ::fdatasync(fd);
    visit(fd);
    ::close(fd);
  }
}

/// Makes the system forget the files' contents, as after a restart.
void drop_page_cache(const std::filesystem::path& directory) {
  for_each_file(directory, [](int fd) { ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); });
}

/// Has the system keep the files' contents in memory.
void fill_page_cache(const std::filesystem::path& directory) {
  std::vector<char> buffer(1 << 20);
  for_each_file(directory, [&](int fd) {
    while (::read(fd, buffer.data(), buffer.size()) > 0) {
    }
  });
}

class CacheBench {
 public:
  CacheBench(const BenchCacheArgs& args, jit::Options options, std::vector<jit::KernelSpec> specs,
             cache::Key key)
      : args_(args),
        options_(std::move(options)),
        specs_(std::move(specs)),
        records_(std::move(key), args.artifact_bytes) {
    options_.cache_layers.clear();
    options_.jit = jit::JitMode::kAuto;
    options_.cache_max_bytes = int64_t{1} << 40;
  }

  Result<std::vector<Figure>> run() {
    for (const int64_t entries : args_.entries) LAYA_TRY(measure_store(entries));
    measure_parts();
    LAYA_TRY(measure_flight());
    return std::move(figures_);
  }

 private:
  cache::StoreOptions store_options(const std::filesystem::path& directory) const {
    cache::StoreOptions options;
    options.directory = directory;
    options.max_bytes = options_.cache_max_bytes;
    options.log = options_.log;
    return options;
  }

  void add(const std::string& name, const std::string& shape, double value, const char* unit,
           std::optional<double> reference = {}) {
    figures_.push_back({name, shape, value, unit, reference, {}, {}});
  }

  void add_percentiles(const std::string& name, const std::string& shape, const Samples& samples) {
    figures_.push_back(figure_of(name, shape, "us", samples));
    add(name + ", p99", shape, samples.quantile(0.99), "us");
    add(name + ", p99.9", shape, samples.quantile(0.999), "us");
  }

  /// Everything that depends on how many entries there are.
  Result<void> measure_store(int64_t entries) {
    LAYA_ASSIGN(const TempDirectory directory, TempDirectory::create());
    const std::string shape = std::to_string(entries) + " entries";
    LAYA_TRY(fill(directory.path(), entries, shape));
    fill_page_cache(directory.path());
    measure_hits(directory.path(), entries, shape);
    LAYA_TRY(measure_starts(directory.path(), entries, shape, /*dropped=*/false));
    LAYA_TRY(measure_throughput(directory.path(), entries, shape));
    return measure_starts(directory.path(), entries, shape, /*dropped=*/true);
  }

  Result<void> fill(const std::filesystem::path& directory, int64_t entries,
                    const std::string& shape) {
    const auto store = cache::Store::open(store_options(directory));
    Progress progress("storing " + shape, entries);
    Samples samples;
    for (int64_t i = 0; i < entries; ++i) {
      const cache::Key key = records_.key(i);
      const cache::Record record = records_.record(i);
      bool stored = false;
      samples.add(microseconds_of([&] { stored = store->put(key, record); }));
      if (!stored) {
        return fail(ErrorKind::kStoreError, "could not store entry " + std::to_string(i) + " in " +
                                                directory.string() + ": is the disk full?");
      }
      if (i % 256 == 0) progress.update(i, "");
    }
    add_percentiles("store", shape, samples);
    return {};
  }

  void measure_hits(const std::filesystem::path& directory, int64_t entries,
                    const std::string& shape) {
    const auto store = cache::Store::open(store_options(directory));
    std::mt19937_64 random(2);
    Samples hits, misses;
    for (int i = 0; i < kHits; ++i) {
      const cache::Key key =
          records_.key(static_cast<int64_t>(random() % static_cast<uint64_t>(entries)));
      hits.add(microseconds_of([&] { (void)store->find(key, kProducer); }));
      const cache::Key absent = records_.key(-1 - i);
      misses.add(microseconds_of([&] { (void)store->find(absent, kProducer); }));
    }
    add_percentiles("hit, store open", shape, hits);
    add_percentiles("miss, store open", shape, misses);
  }

  /// A new process opens the store and reads some kernels; `dropped`: from the disk.
  Result<void> measure_starts(const std::filesystem::path& directory, int64_t entries,
                              const std::string& shape, bool dropped) {
    const auto reads = std::min<int64_t>(kStartupReads, entries);
    Samples samples;
    for (int i = 0; i < kStarts; ++i) {
      if (dropped) drop_page_cache(directory);
      LAYA_ASSIGN(const Child child, Child::start([&] {
                    std::mt19937_64 random(static_cast<uint64_t>(i));
                    int64_t found = 0;
                    const double seconds = time_of([&] {
                      const auto store = cache::Store::open(store_options(directory));
                      for (int64_t r = 0; r < reads; ++r) {
                        const auto number =
                            static_cast<int64_t>(random() % static_cast<uint64_t>(entries));
                        found += store->find(records_.key(number), kProducer).has_value();
                      }
                    });
                    return std::array{seconds, static_cast<double>(found)};
                  }));
      LAYA_ASSIGN(const auto numbers, child.finish());
      if (static_cast<int64_t>(numbers[1]) != reads) {
        return fail(ErrorKind::kInternal, "an entry was not found");
      }
      samples.add(numbers[0] * 1e3);
    }
    figures_.push_back(figure_of("open and read " + std::to_string(reads) + " in a new process" +
                                     (dropped ? ", page cache dropped" : ""),
                                 shape, "ms", samples));
    return {};
  }

  /// Hits a second of one and of many processes.
  Result<void> measure_throughput(const std::filesystem::path& directory, int64_t entries,
                                  const std::string& shape) {
    std::optional<double> one;
    for (const int processes : {1, args_.processes}) {
      std::vector<Child> children;
      for (int p = 0; p < processes; ++p) {
        LAYA_ASSIGN(
            Child child, Child::start([&] {
              const auto store = cache::Store::open(store_options(directory));
              std::mt19937_64 random(static_cast<uint64_t>(p));
              constexpr int kReads = 2000;
              const double seconds = time_of([&] {
                for (int i = 0; i < kReads; ++i) {
                  (void)store->find(
                      records_.key(static_cast<int64_t>(random() % static_cast<uint64_t>(entries))),
                      kProducer);
                }
              });
              return std::array{kReads / seconds, 0.0};
            }));
        children.push_back(child);
      }
      double hits = 0;
      for (const Child& child : children) {
        LAYA_ASSIGN(const auto numbers, child.finish());
        hits += numbers[0];
      }
      add("hits a second, " + std::to_string(processes) + " processes", shape, hits, "1/s", one);
      one = hits;
    }
    return {};
  }

  /// What the checks of a hit cost by themselves.
  void measure_parts() {
    const cache::Key key = records_.key(0);
    const cache::StoredRecord stored = cache::encode(key, records_.record(0));
    Samples checksums, texts;
    for (int i = 0; i < kHits; ++i) {
      checksums.add(microseconds_of([&] { (void)cache::is_intact(stored); }));
      texts.add(
          microseconds_of([&] { (void)cache::has_key_text(stored, key.common(), key.text); }));
    }
    const std::string shape = std::to_string(args_.artifact_bytes) + " B artifact, " +
                              std::to_string(key.text.size()) + " B key text";
    figures_.push_back(figure_of("checksum of a hit", shape, "us", checksums));
    figures_.push_back(figure_of("key text comparison of a hit", shape, "us", texts));
  }

  struct Flight {
    double seconds = 0;
    int64_t compiled = 0;  ///< by those that lived to the end
  };

  /// Some processes start together and want the same kernels; the clock runs until the last is
  /// done. With `kill_after` seconds, the first of them is killed then.
  Result<Flight> fly(int processes, const std::filesystem::path& directory,
                     std::optional<double> kill_after = {}) {
    std::vector<Child> children;
    Flight flight;
    const auto started = std::chrono::steady_clock::now();
    for (int p = 0; p < processes; ++p) {
      LAYA_ASSIGN(Child child, Child::start([&] {
                    jit::Options options = options_;
                    options.cache_dir = directory;
                    const auto engine = jit::Engine::create(options);
                    if (!engine) return std::array{-1.0, 0.0};
                    int64_t ready = 0;
                    for (const auto& report : (*engine)->warm(specs_)) {
                      ready += report.outcome.has_value();
                    }
                    return std::array{static_cast<double>((*engine)->stats().compiled),
                                      static_cast<double>(ready)};
                  }));
      children.push_back(child);
    }
    if (kill_after) {
      std::this_thread::sleep_for(std::chrono::duration<double>(*kill_after));
      children.front().kill();
      children.erase(children.begin());
    }
    for (const Child& child : children) {
      LAYA_ASSIGN(const auto numbers, child.finish());
      if (numbers[1] != static_cast<double>(specs_.size())) {
        return fail(ErrorKind::kInternal, "a process did not get all kernels");
      }
      flight.compiled += static_cast<int64_t>(numbers[0]);
    }
    flight.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    return flight;
  }

  /// One process and many, on an empty cache, a full one, and none. In turns, so that whatever else
  /// the machine does meets all alike.
  Result<void> measure_flight() {
    struct Arm {
      const char* name;
      int processes;
      std::optional<double> kill_at = {};  ///< as a part of the first arm's time
      Samples seconds = {};
      int64_t compiled = 0;
    };
    std::array arms{Arm{"cold, 1 process", 1},
                    Arm{"warm, 1 process", 1},
                    Arm{"cold, many processes", args_.processes},
                    Arm{"warm, many processes", args_.processes},
                    Arm{"cold, many processes, one killed", args_.processes, 0.5},
                    Arm{"no cache, 1 process", 1}};
    Progress progress("compiling", args_.repeat);
    for (int round = 0; round < args_.repeat; ++round) {
      LAYA_ASSIGN(const TempDirectory alone, TempDirectory::create());
      LAYA_ASSIGN(const TempDirectory shared, TempDirectory::create());
      LAYA_ASSIGN(const TempDirectory crashed, TempDirectory::create());
      const std::array<std::filesystem::path, 6> directories{
          alone.path(), alone.path(), shared.path(), shared.path(), crashed.path(), {}};
      double alone_seconds = 0;
      for (size_t i = 0; i < arms.size(); ++i) {
        std::optional<double> kill_after;
        if (arms[i].kill_at) kill_after = *arms[i].kill_at * alone_seconds;
        LAYA_ASSIGN(const Flight flight, fly(arms[i].processes, directories[i], kill_after));
        if (i == 0) alone_seconds = flight.seconds;
        arms[i].seconds.add(flight.seconds);
        arms[i].compiled = std::max(arms[i].compiled, flight.compiled);
      }
      progress.update(round + 1, "");
    }
    for (Arm& arm : arms) {
      const std::string shape =
          std::to_string(arm.processes) + " processes, " + std::to_string(specs_.size()) + " keys";
      Figure figure = figure_of(arm.name, shape, "s", arm.seconds);
      if (&arm != &arms[0]) figure.reference = arms[0].seconds.quantile(0.5);
      figures_.push_back(figure);
      add(std::string("kernels compiled, ") + arm.name, shape, static_cast<double>(arm.compiled),
          "");
    }
    return {};
  }

  const BenchCacheArgs args_;
  jit::Options options_;
  const std::vector<jit::KernelSpec> specs_;
  const Records records_;
  std::vector<Figure> figures_;
};

Result<std::vector<Figure>> measure(const BenchCacheArgs& args) {
  LAYA_ASSIGN(const jit::Options options, command_options());
  LAYA_ASSIGN(const std::vector<model::Plan> plans, plans_of({{}, "base"}, {args.target}, {}));
  std::vector<jit::KernelSpec> specs = plans.front().specs();
  if (specs.size() > static_cast<size_t>(args.keys)) {
    specs.erase(specs.begin() + args.keys, specs.end());
  }
  jit::Options nowhere = options;
  nowhere.cache_dir.clear();
  LAYA_ASSIGN(const std::shared_ptr<jit::Engine> engine, jit::Engine::create(nowhere));
  LAYA_ASSIGN(const cache::Key key, engine->key(specs.front()));
  return CacheBench(args, options, std::move(specs), key).run();
}

int run(const BenchCacheArgs& args) {
  const auto figures = measure(args);
  if (!figures) return report(figures.error());
  print_figures(*figures, args.json);
  return kDone;
}

}  // namespace

Benchmark add_bench_cache(CLI::App& bench) {
  auto args = std::make_shared<BenchCacheArgs>();
  CLI::App* app = bench.add_subcommand(
      "cache", "Time of hits, stores and process starts; compiles when processes start together");
  app->add_option("--entries", args->entries, "Sizes of the cache, comma-separated")
      ->delimiter(',')
      ->check(CLI::Range(1, 10'000'000))
      ->capture_default_str();
  app->add_option("--artifact-bytes", args->artifact_bytes, "Size of each artifact")
      ->check(CLI::Range(16, 1 << 28))
      ->capture_default_str();
  app->add_option("--processes", args->processes, "That start together")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app->add_option("--keys", args->keys, "Kernels that they all want")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app->add_option("--target", args->target, "What those kernels are for, such as cpu or sm_90a")
      ->capture_default_str();
  app->add_option("--repeat", args->repeat, "Rounds of processes that start together")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app->add_flag("--json", args->json, "Machine-readable output");
  return {app, [args] { return run(*args); }};
}

}  // namespace laya::tools
