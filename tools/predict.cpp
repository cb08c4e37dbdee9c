// `laya predict`: answers rows of tokens, one JSON line in, one JSON line out, in order.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "jit/engine.h"
#include "model/model.h"
#include "tools/command.h"
#include "tools/console.h"
#include "tools/devices.h"
#include "tools/progress.h"
#include "tools/row_reader.h"

namespace laya::tools {
namespace {

/// nlohmann's JSON with floats, so that a figure has the digits of a float and not of a double.
using FloatJson = nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool,
                                       int64_t, uint64_t, float>;

struct PredictArgs {
  std::filesystem::path model;
  std::string input = "-";
  std::string device = "auto";
  std::string dtype;
  int64_t batch_size = 32;
  bool json = false;
  bool stats = false;
};

/// Seconds since the command began.
class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  }

 private:
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

Result<std::vector<model::Row>> read_input(const std::string& input, const model::Config& config) {
  if (input == "-") return read_rows(std::cin, "standard input", config);
  std::ifstream file(input);
  if (!file || std::filesystem::is_directory(input)) {
    return fail(ErrorKind::kBadInput, input + ": cannot be read");
  }
  return read_rows(file, input, config);
}

void print_prediction(const model::Prediction& prediction) {
  const FloatJson json = {{"logits", prediction.logits},
                          {"probabilities", prediction.probabilities},
                          {"action_logits", prediction.action_logits}};
  std::printf("%s\n", json.dump().c_str());
}

/// Predicts and prints batch by batch; returns when the first answer was written.
Result<double> predict_all(model::Model& model, std::span<const model::Row> rows,
                           const PredictArgs& args, const Stopwatch& watch) {
  Progress progress("predicting", static_cast<int64_t>(rows.size()));
  const auto batch_size = static_cast<size_t>(args.batch_size);
  double first_answer = watch.seconds();
  for (size_t begin = 0; begin < rows.size(); begin += batch_size) {
    const size_t count = std::min(batch_size, rows.size() - begin);
    LAYA_ASSIGN(const std::vector<model::Prediction> predictions,
                model.predict(rows.subspan(begin, count)));
    for (const model::Prediction& prediction : predictions) print_prediction(prediction);
    std::fflush(stdout);
    if (begin == 0) first_answer = watch.seconds();
    if (rows.size() > batch_size) {
      progress.update(static_cast<int64_t>(begin + count), std::to_string(begin + count) + " rows");
    }
  }
  return first_answer;
}

Result<int> predict(const PredictArgs& args) {
  const Stopwatch watch;
  LAYA_ASSIGN(const jit::Options options, command_options());
  model::ModelOptions model_options;
  if (!args.dtype.empty()) {
    LAYA_ASSIGN(model_options.dtype, model::parse_dtype(args.dtype));
  }
  LAYA_ASSIGN(const model::Config config, model::read_config(args.model));
  // Before anything is computed: a wrong line must not leave the others half done.
  LAYA_ASSIGN(const std::vector<model::Row> rows, read_input(args.input, config));

  LAYA_ASSIGN(const std::shared_ptr<jit::Device> device,
              open_device(args.device, options.cpu_threads));
  LAYA_ASSIGN(const std::shared_ptr<jit::Engine> engine, jit::Engine::create(options));
  const double load_began = watch.seconds();
  LAYA_ASSIGN(const std::shared_ptr<model::Model> model,
              model::Model::load(args.model, engine, device, model_options));
  LAYA_ASSIGN(const double first_answer, predict_all(*model, rows, args, watch));
  if (args.stats) {
    const jit::EngineStats stats = engine->stats();
    print_json({{"stats",
                 {{"compiled", stats.compiled},
                  {"disk_hits", stats.disk_hits},
                  {"memory_hits", stats.memory_hits},
                  {"device_ready_s", load_began},
                  {"kernels_ready_s", load_began + model->stats().kernels_ready_s},
                  {"first_answer_s", first_answer}}}});
  }
  return kDone;
}

}  // namespace

Command add_predict(CLI::App& laya) {
  auto args = std::make_shared<PredictArgs>();
  CLI::App* app = laya.add_subcommand(
      "predict", "Answer rows such as {\"ids\":[2,7,4,9],\"markers\":[2],\"qtype\":0}, one a line");
  app->add_option("--model", args->model, "A checkpoint directory")->required();
  app->add_option("--input", args->input, "A file of JSON lines; - is standard input")
      ->capture_default_str();
  app->add_option("--device", args->device, "auto, cpu, cuda or cuda:N; auto prefers a GPU")
      ->capture_default_str();
  app->add_option("--dtype", args->dtype,
                  "bf16, fp16 or fp32; default: fp32 on CPUs, fp16 on GPUs");
  app->add_option("--batch-size", args->batch_size, "Rows computed at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536));
  app->add_flag("--json", args->json, "Accepted for uniformity: output is always JSON lines");
  app->add_flag("--stats", args->stats, "A last line with counters and times since the start");
  return {app, [args]() -> int {
            const Result<int> status = predict(*args);
            return status ? *status : report(status.error());
          }};
}

}  // namespace laya::tools
