#include "tools/bench_kernels_cuda.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "model/config.h"
#include "model/convert.h"
#include "model/ops.h"
#include "model/residual.h"
#include "model/tuned_tiles.h"
#include "tools/console.h"
#include "tools/gpu_bench.h"
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

double geglu(double u, double g) {
  return 0.5 * u * std::erfc(-u / std::sqrt(2.0)) * g;
}

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
    LAYA_TRY(plan_blas(kSide, kSide, kSide));
    LAYA_ASSIGN(const auto blas, gpu_.time_us({blas_run(kSide, kSide, kSide)}, 3 * kSide * kSide));
    const double flops = 2e-6 * kSide * kSide * kSide;
    product_rate_ = flops / blas[0].quantile(0.5);
    add("cublaslt", "8192 x 8192 x 8192", "TFLOP/s", flops, blas[0], std::nullopt);
    return {};
  }

  Result<void> plan_blas(int64_t rows, int64_t n, int64_t k) {
    if (gpu_.blas()->plan(gpu_.dtype() == DType::kBF16, rows, n, k)) return {};
    return fail(ErrorKind::kDeviceError, "cuBLASLt has no algorithm for a product");
  }
  QueueRun blas_run(int64_t rows, int64_t n, int64_t k) {
    return [this, rows, n, k](size_t set) -> Result<void> {
      const auto bytes = [&](int64_t count) { return static_cast<size_t>(count * 2); };
      if (gpu_.blas()->run(gpu_.activations(set, bytes(rows * k)), gpu_.weights(set, bytes(n * k)),
                           gpu_.more_results(set, bytes(rows * n)), gpu_.stream_handle())) {
        return {};
      }
      return fail(ErrorKind::kDeviceError, "cublasLtMatmul fails");
    };
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
    LAYA_ASSIGN(const RowInputs inputs, row_inputs(c, rows));
    std::vector<QueueRun> runs;
    for (const model::Variant& variant : variants) {
      runs.push_back([&, this](size_t set) { return launch(c, variant, rows, set, inputs); });
    }
    const bool has_blas = gpu_.blas().has_value();
    if (has_blas) {
      LAYA_TRY(plan_blas(rows, c.w_rows(), c.k));
      runs.push_back(blas_run(rows, c.w_rows(), c.k));
    }
    const int64_t elements = rows * c.k + c.w_rows() * c.k + rows * c.n;
    LAYA_ASSIGN(const auto times, gpu_.time_us(runs, static_cast<size_t>(elements * 2)));
    if (has_blas) LAYA_TRY(check(c, variants.front(), rows, inputs));
    const double flops = 2e-6 * static_cast<double>(rows * c.w_rows() * c.k);
    const auto reference =
        has_blas ? std::optional(flops / times.back().quantile(0.5)) : std::nullopt;
    for (size_t i = 0; i < variants.size(); ++i) {
      const std::string shape = std::to_string(rows) + " x " + std::to_string(c.n) + " x " +
                                std::to_string(c.k) + tile_text(variants[i]);
      add(i == 0 ? c.name() : std::string(c.name()) + "/other", shape, "TFLOP/s", flops, times[i],
          reference);
    }
    for (size_t i = 0; options_.tune && i < variants.size(); ++i) {
      tuning_.note(rows, variants[i].spec, times[i].quantile(0.5));
    }
    return {};
  }

  struct RowInputs {
    void* positions;
    void* scales;
    void* moments;
  };

  /// Moments with which a norm changes nothing but the unit of fp16 (moments.cuh); or room for
  /// those that a product leaves.
  Result<RowInputs> row_inputs(const ProductCase& c, int64_t rows) {
    RowInputs inputs{};
    LAYA_ASSIGN(inputs.positions,
                gpu_.integers(std::vector<int32_t>(static_cast<size_t>(rows), 7)));
    std::vector<int32_t> moments(static_cast<size_t>(rows * (std::max(c.k, c.n) / 16)), 0);
    for (size_t i = 1; i < moments.size(); i += 2) {
      moments[i] = std::bit_cast<int32_t>(32 * (1 - kNormEps));
    }
    LAYA_ASSIGN(inputs.moments, gpu_.integers(moments));
    const float unit = gpu_.dtype() == DType::kF16 ? 16 : 1;
    const std::vector<int32_t> scales(static_cast<size_t>(rows), std::bit_cast<int32_t>(unit));
    if (rows >= model::kRowScalesFrom) {
      LAYA_ASSIGN(inputs.scales, gpu_.integers(scales));
    }
    return inputs;
  }

  Result<void> launch(const ProductCase& c, const model::Variant& variant, int64_t rows, size_t set,
                      const RowInputs& inputs) {
    const auto bytes = [](int64_t count) { return static_cast<size_t>(count * 2); };
    void* const a = gpu_.activations(set, bytes(rows * c.k));
    void* const w = gpu_.weights(set, bytes(c.w_rows() * c.k));
    void* const out = gpu_.results(set, bytes(rows * c.n));
    const auto count = static_cast<int32_t>(rows);
    if (c.epilogue == Epilogue::kResidual) {
      void* const no_bias = nullptr;
      const auto [x, x_low] = residual(set, bytes(rows * c.n));
      return gpu_.launch(variant, rows, a, w, no_bias, x, x_low, x, x_low, inputs.moments, count);
    }
    void* const floats = gpu_.floats(0, bytes(2 * c.n));
    if (c.epilogue == Epilogue::kGeglu) {
      return gpu_.launch(variant, rows, a, w, inputs.scales, inputs.moments, out, kNormEps, count);
    }
    if (c.epilogue == Epilogue::kRope) {
      return gpu_.launch(variant, rows, a, w, floats, inputs.positions, inputs.scales,
                         inputs.moments, out, kNormEps, count);
    }
    return gpu_.launch(variant, rows, a, w, floats, inputs.scales, inputs.moments, out, kNormEps,
                       count);
  }

  /// Both parts of a residual stream, of `bytes` each.
  std::pair<void*, void*> residual(size_t set, size_t bytes) const {
    auto* const x = static_cast<std::byte*>(gpu_.residuals(set, 2 * bytes));
    return {x, x + bytes};
  }

  /// Our first rows against cuBLASLt's with the epilogue done here. Rotation is left to the tests.
  Result<void> check(const ProductCase& c, const model::Variant& variant, int64_t rows,
                     const RowInputs& inputs) {
    if (c.epilogue == Epilogue::kRope) return {};
    const int64_t some = std::min<int64_t>(rows, 8);
    const bool is_residual = c.epilogue == Epilogue::kResidual;
    const auto out_bytes = static_cast<size_t>(rows * c.n * 2);
    const auto results = [&] {
      return is_residual ? read_residual(out_bytes, some * c.n)
                         : read(gpu_.results(0, out_bytes), some * c.n);
    };
    std::vector<float> before;
    if (is_residual) {
      LAYA_ASSIGN(before, results());
    }
    LAYA_TRY(launch(c, variant, rows, 0, inputs));
    LAYA_TRY(blas_run(rows, c.w_rows(), c.k)(0));
    LAYA_ASSIGN(const auto ours, results());
    LAYA_ASSIGN(const auto theirs, read(gpu_.more_results(0, 1), some * c.w_rows()));
    LAYA_ASSIGN(const auto bias, read_floats(gpu_.floats(0, 1), c.n));
    const double unit = gpu_.dtype() == DType::kF16 && !is_residual ? 16 : 1;
    double difference = 0, norm = 0;
    for (int64_t row = 0; row < some; ++row) {
      for (int64_t column = 0; column < c.n; ++column) {
        const auto at = static_cast<size_t>(row * c.n + column);
        double wanted = theirs[static_cast<size_t>(row * c.w_rows() + column)] * unit;
        if (c.epilogue == Epilogue::kGeglu) {
          wanted =
              geglu(wanted, theirs[static_cast<size_t>(row * c.w_rows() + c.n + column)] * unit);
        } else if (!is_residual) {
          wanted += bias[static_cast<size_t>(column)];
        }
        if (c.epilogue == Epilogue::kBiasRelu) wanted = std::max(wanted, 0.0);
        const double error = (is_residual ? ours[at] - before[at] : ours[at]) - wanted;
        difference += error * error;
        norm += wanted * wanted;
      }
    }
    constexpr double kLimit = 1e-2;
    if (std::sqrt(difference / norm) <= kLimit) return {};  // never true of NaN
    return fail(ErrorKind::kInternal,
                variant.spec.to_string() + " and cuBLASLt differ by more than rounding");
  }

  Result<std::vector<float>> read_floats(const void* data, int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    LAYA_TRY(gpu_.copy_back(values.data(), data, values.size() * 4));
    return values;
  }

  Result<std::vector<uint16_t>> read_bits(const void* data, int64_t count) {
    std::vector<uint16_t> bits(static_cast<size_t>(count));
    LAYA_TRY(gpu_.copy_back(bits.data(), data, bits.size() * 2));
    return bits;
  }

  Result<std::vector<float>> read_residual(size_t bytes, int64_t count) {
    const auto [x, x_low] = residual(0, bytes);
    LAYA_ASSIGN(const auto upper, read_bits(x, count));
    LAYA_ASSIGN(const auto lower, read_bits(x_low, count));
    std::vector<float> values;
    for (size_t i = 0; i < upper.size(); ++i) {
      values.push_back(model::join_residual({upper[i], lower[i]}, gpu_.dtype()));
    }
    return values;
  }

  Result<std::vector<float>> read(const void* data, int64_t count) {
    LAYA_ASSIGN(const auto bits, read_bits(data, count));
    std::vector<float> values;
    for (const uint16_t x : bits) {
      values.push_back(gpu_.dtype() == DType::kBF16 ? model::bf16_to_float(x)
                                                    : model::fp16_to_float(x));
    }
    return values;
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

    const model::Op norm = model::layer_norm_op(target(), t, DType::kF32, d);
    LAYA_TRY(move("layer_norm", norm, rows, d, 8 * size, [&](size_t set) {
      const auto [x, x_low] = residual(set, 2 * size);
      return gpu_.launch(norm.choose(rows), rows, x, x_low, weight, weight,
                         gpu_.results(set, 4 * size), kNormEps, count);
    }));
    const model::Op embed = model::embed_norm_op(target(), DType::kF16, t, d);
    LAYA_TRY(move("embed_norm", embed, rows, d, 8 * size, [&](size_t set) {
      return gpu_.launch(embed.choose(rows), rows, ids, gpu_.activations(set, 2 * size), weight,
                         gpu_.results(set, 4 * size), second_half(gpu_.results(set, 4 * size)),
                         gpu_.more_results(set, 2 * size), kNormEps, count);
    }));
    const model::Op last = model::final_norm_op(target(), t, d);
    LAYA_TRY(move("final_norm", last, rows, d, 10 * size, [&](size_t set) {
      const auto [x, x_low] = residual(set, 2 * size);
      return gpu_.launch(last.choose(rows), rows, x, x_low, weight, weight, types, weight, weight,
                         gpu_.results(set, 2 * size), kNormEps, count);
    }));
    const model::Op gather = model::gather_rows_op(target(), t, d);
    return move("gather_rows", gather, rows, d, 12 * size, [&](size_t set) {
      const auto [x, x_low] = residual(set, 2 * size);
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
    if (name.ends_with("/other")) return;
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
  static const std::vector<std::string> names{
      "gemm+bias", "gemm+bias+relu", "gemm_rope",  "gemm_geglu", "gemm_residual",
      "attention", "layer_norm",     "embed_norm", "final_norm", "gather_rows"};
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
