// `laya bench kernels`: the model's kernels beside those of the libraries that everyone uses.
#include "tools/bench_kernels.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <set>
#include <span>
#include <tuple>

#include "jit/target.h"
#include "model/config.h"
#include "model/plan.h"
#include "tools/bench_kernels_cuda.h"
#include "tools/console.h"
#include "tools/devices.h"

namespace laya::tools {
namespace {

struct BenchKernelsArgs {
  std::string device = "cpu";
  std::string dtype;
  std::vector<std::string> shapes;
  std::vector<std::string> kernels;
  KernelBench bench;
  CudaKernelBench cuda;
  bool json = false;
};

constexpr int kTuneCandidates = 24;

constexpr int64_t kRows[] = {16, 32, 64, 128, 256, 512, 1024};

struct ProductShape {
  int64_t rows, n, k;
};

Result<ProductShape> parse_shape(const std::string& text) {
  ProductShape shape{};
  char rest = 0;
  const int fields =
      std::sscanf(text.c_str(), "%ldx%ldx%ld%c", &shape.rows, &shape.n, &shape.k, &rest);
  const auto is_size = [](int64_t size) { return size >= 8 && size <= 65536 && size % 8 == 0; };
  if (fields == 3 && shape.rows >= 1 && shape.rows <= 65536 && is_size(shape.n) &&
      is_size(shape.k)) {
    return shape;
  }
  return fail(ErrorKind::kBadInput,
              "shape '" + text +
                  "' is not ROWSxNxK, such as 128x2304x768, with N and K multiples of 8 up to "
                  "65536");
}

/// (N, K) of every product of the presets base and large.
std::set<std::pair<int64_t, int64_t>> model_shapes(Epilogue epilogue) {
  std::set<std::pair<int64_t, int64_t>> shapes;
  for (const char* preset : {"base", "large"}) {
    const auto config = model::preset_config(preset);
    const int64_t d = config->hidden_size, f = config->intermediate_size;
    if (epilogue == Epilogue::kGeglu) {
      shapes.insert({f, d});
    } else if (epilogue == Epilogue::kResidual) {
      shapes.insert({{d, d}, {d, f}, {d, 4 * d}});
    } else {
      shapes.insert({{3 * d, d}, {d, d}, {2 * f, d}, {d, f}, {4 * d, d}, {d, 4 * d}});
    }
  }
  return shapes;
}

Result<Epilogue> parse_kernel(const std::string& word) {
  if (word == "gemm") return Epilogue::kNone;
  if (word == "gemm_gelu") return Epilogue::kBiasGelu;
  if (word == "gemm_geglu") return Epilogue::kGeglu;
  if (word == "gemm_residual") return Epilogue::kResidual;
  return fail(ErrorKind::kBadInput,
              "kernel '" + word + "' is not gemm, gemm_gelu, gemm_residual or gemm_geglu");
}

Result<std::vector<Product>> products_of(const BenchKernelsArgs& args) {
  LAYA_ASSIGN(const model::DType dtype, model::parse_dtype(args.dtype));
  LAYA_TRY(model::check_precision(dtype, jit::host_cpu_target()));
  std::vector<Product> products;
  const std::vector<std::string> all{"gemm", "gemm_gelu", "gemm_residual", "gemm_geglu"};
  for (const std::string& word : args.kernels.empty() ? all : args.kernels) {
    LAYA_ASSIGN(const Epilogue epilogue, parse_kernel(word));
    for (const std::string& text : args.shapes) {
      LAYA_ASSIGN(const ProductShape shape, parse_shape(text));
      products.push_back({dtype, shape.rows, shape.n, shape.k, epilogue});
    }
    if (!args.shapes.empty()) continue;
    for (const auto& [n, k] : model_shapes(epilogue)) {
      for (const int64_t rows : kRows) products.push_back({dtype, rows, n, k, epilogue});
    }
  }
  return products;
}

Result<void> check_cuda_kernels(const std::vector<std::string>& kernels) {
  const std::vector<std::string>& names = cuda_kernel_names();
  for (const std::string& kernel : kernels) {
    if (std::find(names.begin(), names.end(), kernel) != names.end()) continue;
    std::string allowed;
    for (const std::string& name : names) allowed += (allowed.empty() ? "" : ", ") + name;
    return fail(ErrorKind::kBadInput,
                "kernel '" + kernel + "' is not one of the GPU's: " + allowed);
  }
  return {};
}

Result<std::vector<Figure>> bench_gpu(BenchKernelsArgs& args) {
  LAYA_TRY(check_cuda_kernels(args.kernels));
  args.cuda.kernels = args.kernels;
  if (!args.dtype.empty()) {
    LAYA_ASSIGN(args.cuda.dtype, model::parse_dtype(args.dtype));
  }
  if (args.cuda.dtype == model::DType::kF32) {
    return fail(ErrorKind::kBadInput, "dtype fp32 is not measured on GPUs, allowed: bf16, fp16");
  }
  args.cuda.rounds = args.bench.rounds;
  if (args.cuda.tune && args.cuda.candidates == 0) args.cuda.candidates = kTuneCandidates;
  LAYA_ASSIGN(const std::shared_ptr<jit::Device> device, open_device(args.device, {}));
  LAYA_ASSIGN(const jit::Options options, command_options());
  LAYA_ASSIGN(const std::shared_ptr<jit::Engine> engine, jit::Engine::create(options));
  return bench_cuda_kernels(device, engine, args.cuda);
}

/// An option that one device's bench has is a mistake where the other one is asked for.
Result<void> check_options(const CLI::App& app, bool is_gpu) {
  constexpr const char* kCpuOptions[] = {"--shape", "--threads", "--onednn"};
  constexpr const char* kGpuOptions[] = {"--preset", "--rows", "--candidates", "--tune"};
  const auto check = [&](std::span<const char* const> options, const char* wanted,
                         const char* other) -> Result<void> {
    for (const char* option : options) {
      if (app.get_option(option)->count() == 0) continue;
      return fail(ErrorKind::kBadInput, std::string(option) + " is for " + other +
                                            ", the device is " + wanted +
                                            ": leave it out or choose another --device");
    }
    return {};
  };
  return is_gpu ? check(kCpuOptions, "a GPU", "the CPU") : check(kGpuOptions, "the CPU", "GPUs");
}

Result<int> bench(const CLI::App& app, BenchKernelsArgs args) {
  LAYA_TRY(check_options(app, args.device.starts_with("cuda")));
  if (args.device.starts_with("cuda")) {
    LAYA_ASSIGN(const std::vector<Figure> figures, bench_gpu(args));
    print_figures(figures, args.json);
    return kDone;
  }
  if (args.dtype.empty()) args.dtype = "fp32";
  if (args.device != "cpu") {
    return fail(ErrorKind::kBadInput, "device '" + args.device + "' is not cpu, cuda or cuda:N");
  }
  LAYA_ASSIGN(args.bench.products, products_of(args));
  LAYA_ASSIGN(const std::vector<Figure> figures, bench_cpu_kernels(args.bench));
  print_figures(figures, args.json);
  return kDone;
}

}  // namespace

Benchmark add_bench_kernels(CLI::App& bench_app) {
  auto args = std::make_shared<BenchKernelsArgs>();
  CLI::App* app =
      bench_app.add_subcommand("kernels", "Kernels beside oneDNN's, OpenBLAS's and cuBLASLt's");
  app->add_option("--device", args->device, "cpu, cuda or cuda:N")->capture_default_str();
  app->add_option("--dtype", args->dtype,
                  "CPU: fp32 (default) or bf16; GPU: bf16 (default) or fp16");
  app->add_option("--shape", args->shapes,
                  "CPU: ROWSxNxK, comma-separated; default: all of base and large, 16 to 1024 rows")
      ->delimiter(',');
  app->add_option("--kernel", args->kernels,
                  "Default: all. CPU: gemm, gemm_gelu (with bias), gemm_residual (added to fp32), "
                  "gemm_geglu (N columns of the result); GPU: names as in the table")
      ->delimiter(',');
  app->add_option("--threads", args->bench.threads, "CPU: default one per core")
      ->check(CLI::Range(1, 1024));
  app->add_option("--repeat", args->bench.rounds, "Rounds; each measures every implementation")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  app->add_option("--preset", args->cuda.presets, "GPU: whose kernels")
      ->delimiter(',')
      ->capture_default_str();
  app->add_option("--rows", args->cuda.rows, "GPU: rows of every kernel but attention")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(1, 32768));
  app->add_option("--candidates", args->cuda.candidates,
                  "GPU: tiles to measure beside the chosen one")
      ->capture_default_str()
      ->check(CLI::Range(0, 1000));
  app->add_flag("--tune", args->cuda.tune,
                "GPU: keep the fastest tiles in the cache; models use them from then on");
  app->add_option("--onednn", args->bench.onednn,
                  "CPU: library; default: the installed libdnnl.so");
  app->add_flag("--json", args->json, "Machine-readable output");
  return {app, [app, args]() -> int {
            const Result<int> status = bench(*app, *args);
            return status ? *status : report(status.error());
          }};
}

}  // namespace laya::tools
