#include "tools/bench_kernels_cuda.h"

#include <algorithm>
#include <set>

#include "model/config.h"
#include "model/ops.h"
#include "model/tuned_tiles.h"
#include "tools/console.h"
#include "tools/gpu_bench.h"
#include "tools/gpu_product.h"
#include "tools/product_cases.h"
#include "tools/progress.h"
#include "tools/tile_tuning.h"

namespace laya::tools {
namespace {

using model::DType;
using model::kHeadDim;
using model::kNormEps;

/// The reference that every kernel without arithmetic is held against.
constexpr const char* kCopy = R"(//! entry copy
//! arg from ptr    [n, 16] bytes
//! arg to   ptr    [n, 16] bytes, written
//! arg n    i64
extern "C" __global__ void copy(const float4* from, float4* to, long long n) {
  const long long first = blockIdx.x * 1024LL + threadIdx.x;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (first + i * 256 < n) to[first + i * 256] = from[first + i * 256];
  }
}
)";

class KernelBench {
 public:
  KernelBench(GpuBench& gpu, const CudaKernelBench& options) : gpu_(gpu), options_(options) {}

  Result<std::vector<Figure>> run() {
    std::vector<model::Config> configs;
    for (const std::string& preset : options_.presets) {
      LAYA_ASSIGN(model::Config config, model::preset_config(preset));
      configs.push_back(std::move(config));
    }
    LAYA_TRY(measure_ceilings());
    LAYA_TRY(measure_products(products_of(configs)));
    for (const model::Config& config : configs) {
      LAYA_TRY(measure_attention(config));
      for (const int64_t rows : options_.rows) LAYA_TRY(measure_rows(config, rows));
    }
    return std::move(figures_);
  }

 private:
  bool is_wanted(const std::string& name) const {
    const auto& kernels = options_.kernels;
    return kernels.empty() || std::find(kernels.begin(), kernels.end(), name) != kernels.end();
  }
  const jit::Target& target() const { return gpu_.device().target(); }

  // ---- ceilings ----

  Result<void> measure_ceilings() {
    LAYA_TRY(gpu_.engine().add_template("bench_copy", jit::Backend::kCuda, kCopy));
    LAYA_ASSIGN(const auto copy, gpu_.engine().kernel(jit::KernelSpec("bench_copy", target())));
    constexpr size_t kBytes = size_t{512} << 20;
    const int64_t n = kBytes / 16;
    const auto blocks = static_cast<uint32_t>((n + 1023) / 1024);
    LAYA_ASSIGN(const auto times,
                gpu_.time_us({[&](size_t) {
                               return copy->launch(
                                   gpu_.stream(), {.grid = {blocks}, .block = {256}},
                                   gpu_.floats(0, kBytes), gpu_.results(0, kBytes), n);
                             }},
                             2 * kBytes));
    copy_rate_ = 2e-3 * kBytes / times[0].quantile(0.5);
    add("copy", "512 MiB", "GB/s", 2e-3 * kBytes, times[0], std::nullopt);
    if (!gpu_.blas()) {
      note("cuBLASLt was not found: products have no reference");
      return {};
    }
    constexpr int64_t kSide = 8192;
    LAYA_ASSIGN(const QueueRun product, gpu_.blas_run(kSide, kSide, kSide));
    LAYA_ASSIGN(const auto blas, gpu_.time_us({product}, 3 * kSide * kSide));
    const double flops = 2e-6 * kSide * kSide * kSide;
    product_rate_ = flops / blas[0].quantile(0.5);
    add("cublaslt", "8192 x 8192 x 8192", "TFLOP/s", flops, blas[0], std::nullopt);
    return {};
  }

  // ---- products ----

  Result<void> measure_products(const std::set<ProductCase>& cases) {
    std::vector<jit::KernelSpec> specs;
    for (const ProductCase& c : cases) {
      if (!is_wanted(c.name())) continue;
      for (const int64_t rows : options_.rows) {
        for (const model::Variant& v : variants_of(c, rows)) specs.push_back(v.spec);
      }
    }
    for (const jit::BuildReport& report : gpu_.engine().warm(specs)) LAYA_TRY(report.outcome);
    Progress progress("products", static_cast<int64_t>(cases.size()));
    int64_t done = 0;
    for (const ProductCase& c : cases) {
      if (is_wanted(c.name())) {
        for (const int64_t rows : options_.rows) LAYA_TRY(measure_product(c, rows));
        if (options_.tune) LAYA_TRY(tune(c));
      }
      progress.update(++done, c.name());
    }
    return {};
  }

  /// The variant that the model would use, then the tiles to compare with, the most promising
  /// first.
  std::vector<model::Variant> variants_of(const ProductCase& c, int64_t rows) const {
    model::Op op = c.op(target(), gpu_.dtype());
    if (op.variants.empty()) return {};
    model::use_tuned_tiles(op, gpu_.engine().store(), &gpu_.engine().layers());
    std::vector<model::Variant> variants{op.choose(rows)};
    const auto base = model::product_base(variants.front().spec);
    if (!base || options_.candidates == 0) return variants;
    for (const model::ProductTile& tile : model::ranked_product_tiles(*base, rows)) {
      model::Variant other = model::product_variant(*base, tile, rows);
      if (other.spec != variants.front().spec) variants.push_back(std::move(other));
      if (std::ssize(variants) > options_.candidates) break;
    }
    return variants;
  }

  Result<void> tune(const ProductCase& c) {
    const model::Op op = c.op(target(), gpu_.dtype());
    const auto base =
        op.variants.empty() ? std::nullopt : model::product_base(op.variants.front().spec);
    if (!base) return {};
    const std::string detail = "fastest of " + std::to_string(options_.candidates + 1) +
                               " at each row count, medians of " + std::to_string(options_.rounds);
    return tuning_.store_fastest(*base, options_.rows, {gpu_.device().name(), detail},
                                 gpu_.engine().store());
  }

  Result<void> measure_product(const ProductCase& c, int64_t rows) {
    const std::vector<model::Variant> variants = variants_of(c, rows);
    if (variants.empty()) return {};
    LAYA_ASSIGN(const GpuProduct product, GpuProduct::create(gpu_, c, rows));
    std::vector<QueueRun> runs;
    for (const model::Variant& variant : variants) {
      runs.push_back([&](size_t set) { return product.launch(variant, set); });
    }
    const bool has_blas = gpu_.blas().has_value();
    const bool adds = c.epilogue == Epilogue::kResidual;
    if (has_blas) {
      LAYA_ASSIGN(QueueRun blas, gpu_.blas_run(rows, c.w_rows(), c.k));
      runs.push_back(std::move(blas));
    }
    if (has_blas && adds) {
      LAYA_ASSIGN(QueueRun blas, gpu_.blas_add(rows, c.n, c.k));
      runs.push_back(std::move(blas));
    }
    const int64_t elements = rows * c.k + c.w_rows() * c.k + rows * c.n;
    LAYA_ASSIGN(const auto times, gpu_.time_us(runs, static_cast<size_t>(elements * 2)));
    if (has_blas) LAYA_TRY(product.check(variants.front(), runs[variants.size()]));
    const double flops = 2e-6 * static_cast<double>(rows * c.w_rows() * c.k);
    const auto rate = [&](size_t run) {
      return has_blas ? std::optional(flops / times[run].quantile(0.5)) : std::nullopt;
    };
    const auto reference = rate(variants.size());
    for (size_t i = 0; i < variants.size(); ++i) {
      const std::string shape = std::to_string(rows) + " x " + std::to_string(c.n) + " x " +
                                std::to_string(c.k) + tile_text(variants[i]);
      add(i == 0 ? c.name() : std::string(c.name()) + "/other", shape, "TFLOP/s", flops, times[i],
          reference);
      if (i == 0 && adds) {
        add("gemm_residual/adding", shape, "TFLOP/s", flops, times[i], rate(runs.size() - 1));
      }
    }
    for (size_t i = 0; options_.tune && i < variants.size(); ++i) {
      tuning_.note(rows, variants[i].spec, times[i].quantile(0.5));
    }
    return {};
  }

  // ---- attention ----

  Result<void> measure_attention(const model::Config& config) {
    struct Batch {
      int64_t rows, tokens;
    };
    if (!is_wanted("attention")) return {};
    for (const Batch& batch : {Batch{1, 96}, {1, 1024}, {8, 256}, {32, 1024}}) {
      for (const int64_t window : {int64_t{0}, config.window}) {
        LAYA_TRY(measure_attention(config.heads(), window, batch.rows, batch.tokens));
      }
    }
    return {};
  }

  Result<void> measure_attention(int64_t heads, int64_t window, int64_t sequences, int64_t length) {
    const model::Op op = model::attention_op(target(), gpu_.dtype(), heads, kHeadDim, window);
    const int64_t rows = sequences * length;
    const model::Variant& variant = op.choose(rows);
    const int64_t queries = variant.rule.rows_per_block;
    std::vector<int32_t> first_rows, tiles;
    double pairs = 0;
    for (int64_t i = 0; i <= sequences; ++i) first_rows.push_back(static_cast<int32_t>(i * length));
    for (int64_t i = 0; i < sequences; ++i) {
      for (int64_t q = 0; q < length; q += queries) {
        tiles.insert(tiles.end(), {static_cast<int32_t>(i), static_cast<int32_t>(q)});
      }
      for (int64_t q = 0; q < length; ++q) {
        const int64_t begin = window > 0 ? std::max<int64_t>(0, q - window) : 0;
        const int64_t end = window > 0 ? std::min(length, q + window + 1) : length;
        pairs += static_cast<double>(end - begin);
      }
    }
    LAYA_ASSIGN(void* const sequence_rows, gpu_.integers(first_rows));
    LAYA_ASSIGN(void* const tile_list, gpu_.integers(tiles));
    const auto n = static_cast<int32_t>(tiles.size() / 2);
    const auto out_bytes = static_cast<size_t>(rows * heads * kHeadDim * 2);
    const auto run = [&](size_t set) {
      return gpu_.launch(variant, n * queries, gpu_.activations(set, 3 * out_bytes),
                         gpu_.results(set, out_bytes), sequence_rows, tile_list, n);
    };
    LAYA_ASSIGN(const auto times, gpu_.time_us({run}, 4 * out_bytes));
    const std::string shape = std::to_string(sequences) + " x " + std::to_string(length) +
                              " heads " + std::to_string(heads) +
                              (window > 0 ? " window " + std::to_string(window) : "");
    add("attention", shape, "TFLOP/s", pairs * static_cast<double>(heads * kHeadDim * 4) * 1e-6,
        times[0], std::nullopt);
    return {};
  }

  // ---- kernels that move rows ----

  Result<void> measure_rows(const model::Config& config, int64_t rows) {
    const int64_t d = config.hidden_size;
    const auto size = static_cast<size_t>(rows * d);
    const auto count = static_cast<int32_t>(rows);
    const DType t = gpu_.dtype();
    void* const weight = gpu_.floats(0, static_cast<size_t>(d * 4));
    std::vector<int32_t> numbers(static_cast<size_t>(rows));
    for (size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = static_cast<int32_t>(i * 7919 % static_cast<size_t>(rows));
    }
    LAYA_ASSIGN(void* const ids, gpu_.integers(numbers));
    const auto second_half = [&](void* array) -> void* {
      return static_cast<std::byte*>(array) + 2 * size;
    };
    LAYA_ASSIGN(void* const types, gpu_.integers(std::vector<int32_t>(numbers.size(), 1)));

    const model::Op embed = model::embed_norm_op(target(), DType::kF16, t, d);
    LAYA_TRY(move("embed_norm", embed, rows, d, 8 * size, [&](size_t set) {
      return gpu_.launch(embed.choose(rows), rows, ids, gpu_.activations(set, 2 * size), weight,
                         gpu_.results(set, 4 * size), second_half(gpu_.results(set, 4 * size)),
                         gpu_.more_results(set, 2 * size), kNormEps, count);
    }));
    const model::Op last = model::final_norm_op(target(), t, d);
    LAYA_TRY(move("final_norm", last, rows, d, 10 * size, [&](size_t set) {
      const auto [x, x_low] = gpu_.residual(set, 2 * size);
      return gpu_.launch(last.choose(rows), rows, x, x_low, weight, weight, types, weight, weight,
                         gpu_.results(set, 2 * size), kNormEps, count);
    }));
    const model::Op gather = model::gather_rows_op(target(), t, d);
    return move("gather_rows", gather, rows, d, 12 * size, [&](size_t set) {
      const auto [x, x_low] = gpu_.residual(set, 2 * size);
      return gpu_.launch(gather.choose(rows), rows, ids, gpu_.activations(set, 2 * size), x, x_low,
                         gpu_.results(set, 2 * size), gpu_.more_results(set, 4 * size),
                         second_half(gpu_.more_results(set, 4 * size)), count);
    });
  }

  /// `bytes`: read and written.
  Result<void> move(const std::string& name, const model::Op& op, int64_t rows, int64_t columns,
                    size_t bytes, const QueueRun& run) {
    if (!is_wanted(name) || op.variants.empty()) return {};
    LAYA_ASSIGN(const auto times, gpu_.time_us({run}, bytes));
    add(name, std::to_string(rows) + " x " + std::to_string(columns), "GB/s",
        1e-3 * static_cast<double>(bytes), times[0], copy_rate_);
    return {};
  }

  // ---- results ----

  /// `work`: what a microsecond does at a rate of 1.
  void add(const std::string& name, const std::string& shape, const char* unit, double work,
           const Samples& us, std::optional<double> reference) {
    Figure figure{name, shape, work / us.quantile(0.5), unit, reference, {}, {}};
    figure.p50 = figure.value;
    figure.p95 = work / us.quantile(0.95);
    figures_.push_back(figure);
    if (std::string_view(unit) != "TFLOP/s" || product_rate_ == 0 || name == "cublaslt") return;
    if (name.find('/') != std::string::npos) return;
    figure.name += "/ceiling";
    figure.reference = product_rate_;
    figures_.push_back(std::move(figure));
  }

  GpuBench& gpu_;
  const CudaKernelBench& options_;
  TileTuning tuning_;
  double copy_rate_ = 0;     // GB/s, bytes read and written
  double product_rate_ = 0;  // TFLOP/s
  std::vector<Figure> figures_;
};

}  // namespace

const std::vector<std::string>& cuda_kernel_names() {
  static const std::vector<std::string> names{"gemm+bias",  "gemm+bias+relu", "gemm_rope",
                                              "gemm_geglu", "gemm_residual",  "attention",
                                              "embed_norm", "final_norm",     "gather_rows"};
  return names;
}

Result<std::vector<Figure>> bench_cuda_kernels(std::shared_ptr<jit::Device> device,
                                               std::shared_ptr<jit::Engine> engine,
                                               const CudaKernelBench& options) {
  LAYA_ASSIGN(const auto gpu, GpuBench::create(std::move(device), std::move(engine), options.dtype,
                                               options.rounds));
  return KernelBench(*gpu, options).run();
}

}  // namespace laya::tools
