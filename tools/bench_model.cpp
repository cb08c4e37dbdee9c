// `laya bench model`: time and extra memory of whole predictions, beside what the same shapes take
// elsewhere.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "jit/engine.h"
#include "model/model.h"
#include "model/synthetic.h"
#include "tools/bench.h"
#include "tools/console.h"
#include "tools/devices.h"
#include "tools/progress.h"
#include "tools/targets.h"
#include "tools/temp_directory.h"

namespace laya::tools {
namespace {

constexpr int kMarkers[] = {3, 9, 15, 21, 27};
constexpr int kWarmups = 3;

struct BenchModelArgs {
  ModelChoice choice;
  std::string device = "auto";
  std::string dtype;
  std::vector<std::string> shapes{"1x64",  "1x96",  "1x512",  "1x1024",
                                  "4x128", "8x256", "32x128", "32x1024"};
  int repeat = 20;
  std::filesystem::path reference;
  bool json = false;
};

struct BatchShape {
  int rows = 0, tokens = 0;
  auto operator<=>(const BatchShape&) const = default;
  std::string to_string() const { return std::to_string(rows) + "x" + std::to_string(tokens); }
};

struct Reference {
  std::optional<double> p50_ms, peak_mib;
};
using References = std::map<BatchShape, Reference>;

Result<BatchShape> parse_shape(const std::string& text) {
  BatchShape shape;
  char rest = 0;
  const int fields = std::sscanf(text.c_str(), "%dx%d%c", &shape.rows, &shape.tokens, &rest);
  if (fields == 2 && shape.rows >= 1 && shape.tokens >= 48) return shape;
  return fail(ErrorKind::kBadInput, "shape '" + text +
                                        "' is not ROWSxTOKENS with at least 48 tokens, such as "
                                        "32x1024");
}

/// A line of the file: {"rows":4,"L":128,"p50_ms":2.7,"peak_mb":12.5, ...}, peak_mb where it is
/// known; others, of another kind or of another model, are skipped.
void add_reference(const Json& line, const std::string& preset, References& references) {
  if (!line.is_object() || !line.contains("rows") || !line.contains("L")) return;
  if (!line.contains("p50_ms")) return;
  if (!preset.empty() && line.value("cfg", preset) != preset) return;
  const BatchShape shape{line["rows"].get<int>(), line["L"].get<int>()};
  Reference reference{line["p50_ms"].get<double>(), {}};
  if (line.contains("peak_mb")) reference.peak_mib = line["peak_mb"].get<double>();
  const auto [at, is_new] = references.emplace(shape, reference);
  // Of several ways to run it, the fastest is the one to beat.
  if (!is_new && reference.p50_ms < at->second.p50_ms) at->second = reference;
}

Result<References> read_references(const BenchModelArgs& args) {
  References references;
  if (args.reference.empty()) return references;
  std::ifstream file(args.reference);
  if (!file) return fail(ErrorKind::kBadInput, args.reference.string() + ": cannot be read");
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    try {
      if (!line.empty()) add_reference(Json::parse(line), args.choice.preset, references);
    } catch (const Json::exception& error) {
      return fail(ErrorKind::kBadInput,
                  args.reference.string() + ":" + std::to_string(number) + ": " + error.what());
    }
  }
  if (!references.empty()) return references;
  return fail(ErrorKind::kBadInput, args.reference.string() + " has no line for this model");
}

/// Random rows of 60 to 100 % of the length; the first one is full.
std::vector<model::Row> make_rows(const BatchShape& shape, const model::Config& config) {
  std::mt19937_64 random(static_cast<uint64_t>(shape.rows) * 7919 +
                         static_cast<uint64_t>(shape.tokens));
  std::uniform_int_distribution<int> length(shape.tokens * 6 / 10, shape.tokens);
  std::uniform_int_distribution<int32_t> token(5, static_cast<int32_t>(config.vocab_size) - 1);
  std::vector<model::Row> rows(static_cast<size_t>(shape.rows));
  for (model::Row& row : rows) {
    row.ids.resize(static_cast<size_t>(&row == rows.data() ? shape.tokens : length(random)));
    std::generate(row.ids.begin(), row.ids.end(), [&] { return token(random); });
    row.markers.assign(std::begin(kMarkers), std::end(kMarkers));
  }
  return rows;
}

class ModelBench {
 public:
  ModelBench(model::Model& model, References references, int repeat)
      : model_(model), references_(std::move(references)), repeat_(repeat) {}

  Result<void> measure(const BatchShape& shape) {
    const std::vector<model::Row> rows = make_rows(shape, model_.config());
    Samples milliseconds;
    for (int i = 0; i < kWarmups + repeat_; ++i) {
      Result<std::vector<model::Prediction>> predictions;
      const double seconds = time_of([&] { predictions = model_.predict(rows); });
      LAYA_TRY(predictions);
      if (i >= kWarmups) milliseconds.add(seconds * 1e3);
    }
    add(figure_of("predict", shape.to_string(), "ms", milliseconds), shape, &Reference::p50_ms);
    // Held between calls and grown when needed, so it is that of the largest shape so far.
    const auto bytes = static_cast<double>(model_.stats().workspace_bytes);
    add({"extra memory", shape.to_string(), bytes / (1 << 20), "MiB", {}, {}, {}}, shape,
        &Reference::peak_mib);
    return {};
  }

  const std::vector<Figure>& figures() const { return figures_; }

 private:
  void add(Figure figure, const BatchShape& shape, std::optional<double> Reference::* value) {
    const auto reference = references_.find(shape);
    if (reference != references_.end()) figure.reference = reference->second.*value;
    figures_.push_back(std::move(figure));
  }

  model::Model& model_;
  References references_;
  int repeat_;
  std::vector<Figure> figures_;
};

/// The checkpoint's directory: the given one, or a synthetic checkpoint in `scratch`.
Result<std::filesystem::path> prepare_checkpoint(const ModelChoice& choice,
                                                 const TempDirectory& scratch) {
  if (choice.directory.empty() == choice.preset.empty()) {
    return fail(ErrorKind::kBadInput, "give either --model or --preset");
  }
  if (choice.preset.empty()) return choice.directory;
  LAYA_ASSIGN(const model::Config config, model::preset_config(choice.preset));
  LAYA_TRY(model::write_synthetic_checkpoint(scratch.path(), config, {}));
  return scratch.path();
}

Result<std::shared_ptr<model::Model>> load_model(const BenchModelArgs& args) {
  LAYA_ASSIGN(const jit::Options options, command_options());
  model::ModelOptions model_options;
  if (!args.dtype.empty()) {
    LAYA_ASSIGN(model_options.dtype, model::parse_dtype(args.dtype));
  }
  LAYA_ASSIGN(const std::shared_ptr<jit::Device> device,
              open_device(args.device, options.cpu_threads));
  LAYA_ASSIGN(const std::shared_ptr<jit::Engine> engine, jit::Engine::create(options));
  LAYA_ASSIGN(const TempDirectory scratch, TempDirectory::create());
  LAYA_ASSIGN(const std::filesystem::path checkpoint, prepare_checkpoint(args.choice, scratch));
  // The model keeps nothing of the directory, which goes away here.
  return model::Model::load(checkpoint, engine, device, model_options);
}

Result<int> bench(const BenchModelArgs& args) {
  std::vector<BatchShape> shapes;
  for (const std::string& text : args.shapes) {
    LAYA_ASSIGN(const BatchShape shape, parse_shape(text));
    shapes.push_back(shape);
  }
  // Small ones first: work memory only grows, and each shape's own is wanted.
  std::sort(shapes.begin(), shapes.end(), [](const BatchShape& a, const BatchShape& b) {
    return int64_t{a.rows} * a.tokens < int64_t{b.rows} * b.tokens;
  });
  LAYA_ASSIGN(References references, read_references(args));
  LAYA_ASSIGN(const std::shared_ptr<model::Model> model, load_model(args));

  ModelBench bench(*model, std::move(references), args.repeat);
  Progress progress("measuring", static_cast<int64_t>(shapes.size()));
  for (size_t i = 0; i < shapes.size(); ++i) {
    LAYA_TRY(bench.measure(shapes[i]));
    progress.update(static_cast<int64_t>(i + 1), shapes[i].to_string());
  }
  print_figures(bench.figures(), args.json);
  return kDone;
}

}  // namespace

Benchmark add_bench_model(CLI::App& bench_app) {
  auto args = std::make_shared<BenchModelArgs>();
  CLI::App* app = bench_app.add_subcommand("model", "Time and extra memory of predictions");
  app->add_option("--model", args->choice.directory, "A checkpoint directory");
  app->add_option("--preset", args->choice.preset,
                  "Or a synthetic checkpoint: tiny, base or large");
  app->add_option("--device", args->device, "auto, cpu, cuda or cuda:N")->capture_default_str();
  app->add_option("--dtype", args->dtype,
                  "bf16, fp16 or fp32; default: fp32 on CPUs, fp16 on GPUs");
  app->add_option("--shapes", args->shapes, "ROWSxTOKENS, comma-separated; rows are 60-100 % full")
      ->delimiter(',')
      ->capture_default_str();
  app->add_option("--repeat", args->repeat, "Measured runs of each shape")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  app->add_option("--reference", args->reference,
                  "JSON lines {\"cfg\",\"rows\",\"L\",\"p50_ms\",\"peak_mb\"} to compare with");
  app->add_flag("--json", args->json, "Machine-readable output");
  return {app, [args]() -> int {
            const Result<int> status = bench(*args);
            return status ? *status : report(status.error());
          }};
}

}  // namespace laya::tools
