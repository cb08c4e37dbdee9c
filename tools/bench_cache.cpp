// `laya bench cache`: what the artifact store costs: a hit with the store open and from process
// start, its file in memory and not, its parts, a store, many processes at once. bench_flight.h
// adds what happens when these start together.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "cache/codec.h"
#include "cache/store.h"
#include "jit/engine.h"
#include "tools/bench.h"
#include "tools/bench_flight.h"
#include "tools/child_process.h"
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
constexpr int64_t kUsed = 100;     // entries that a process keeps using
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
    LAYA_ASSIGN(const auto flight, bench_flight({options_, specs_, args_.processes, args_.repeat}));
    figures_.insert(figures_.end(), flight.begin(), flight.end());
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
    const auto any_of = [&](int64_t count) {
      return static_cast<int64_t>(random() % static_cast<uint64_t>(count));
    };
    Samples hits, hits_of_used, misses;
    const auto measure_find = [&](const cache::Key& key, Samples& samples) {
      samples.add(microseconds_of([&] { (void)store->find(key, kProducer); }));
    };
    for (int i = 0; i < kHits; ++i) {
      measure_find(records_.key(any_of(entries)), hits);
      measure_find(records_.key(-1 - i), misses);
    }
    // As many entries whatever the size, from all over the cache: what they take from the
    // processor's caches is the same, so that the cache's size alone makes the difference.
    const int64_t used = std::min(kUsed, entries);
    const auto used_key = [&](int64_t i) { return records_.key(i * entries / used); };
    for (int64_t i = 0; i < used; ++i) (void)store->find(used_key(i), kProducer);
    for (int i = 0; i < kHits; ++i) measure_find(used_key(any_of(used)), hits_of_used);
    add_percentiles("hit, store open", shape, hits);
    add_percentiles("hit, one of " + std::to_string(used) + " in use", shape, hits_of_used);
    add_percentiles("miss, store open", shape, misses);
  }

  /// A new process opens the store and reads some kernels; `dropped`: from the disk.
  Result<void> measure_starts(const std::filesystem::path& directory, int64_t entries,
                              const std::string& shape, bool dropped) {
    const auto reads = std::min<int64_t>(kStartupReads, entries);
    Samples samples;
    for (int i = 0; i < kStarts; ++i) {
      if (dropped) drop_page_cache(directory);
      LAYA_ASSIGN(const ChildProcess child, ChildProcess::start([&] {
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
      std::vector<ChildProcess> children;
      for (int p = 0; p < processes; ++p) {
        LAYA_ASSIGN(
            ChildProcess child, ChildProcess::start([&] {
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
      for (const ChildProcess& child : children) {
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
