// The part of hopper_check for gemm_sm90 and gemm_geglu_sm90.
#include <cmath>

#include "model/ops.h"
#include "tests/gpu/hopper_support.h"

namespace laya::test {
namespace {

using model::Activation;

constexpr size_t kGuard = 4096;  // bytes before and after an output

double gelu(double x) {
  return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
}

struct ProductCase {
  bool is_geglu;
  int64_t n, k;
  bool bias;
  Activation act;

  int64_t w_rows() const { return is_geglu ? 2 * n : n; }
  std::string name() const {
    static const char* const kActs[] = {"", "+relu", "+gelu"};
    return (is_geglu ? "geglu " : "gemm ") + std::to_string(n) + "x" + std::to_string(k) +
           (bias ? "+bias" : "") + kActs[static_cast<int>(act)];
  }
};

std::string tile_text(const model::Variant& variant) {
  std::string text;
  for (const char* name : {"BM", "BN", "CLUSTER", "CONSUMERS", "STAGES"}) {
    text += (text.empty() ? "" : ",") + std::to_string(model::int_param(variant.spec, name));
  }
  if (model::word_param(variant.spec, "SHARED") == "yes") text += ",shared";
  return text;
}

jit::KernelSpec base_of(const ProductCase& c, const Flags& flags) {
  static const char* const kActs[] = {"none", "relu", "gelu"};
  jit::KernelSpec spec(c.is_geglu ? "gemm_geglu" : "gemm", {jit::Backend::kCuda, "sm_90a"});
  spec.set("T", to_string(flags.dtype)).set("N", c.n).set("K", c.k);
  if (c.is_geglu) return spec;
  return spec.set("BIAS", c.bias ? "yes" : "no").set("ACT", kActs[static_cast<int>(c.act)]);
}

/// The Hopper variants of a product, or the one that --tile asks for.
std::vector<model::Variant> variants_of(const ProductCase& c, const Flags& flags) {
  const jit::KernelSpec base = base_of(c, flags);
  if (flags.tile.empty()) return to_variants(base, model::sm90_tiles(base), flags);
  long v[5] = {};
  if (sscanf(flags.tile.c_str(), "%ld,%ld,%ld,%ld,%ld", &v[0], &v[1], &v[2], &v[3], &v[4]) != 5) {
    die("--tile needs five numbers");
  }
  const model::ProductTile tile{v[0], v[1], v[2], v[3], v[4] != 0};
  return to_variants(base, {model::product_tile(base, tile, INT64_MAX)}, flags);
}

/// What to time: the variant that the model would use, or what --sweep asks for.
std::vector<model::Variant> timed_variants(const ProductCase& c, int64_t rows, const Flags& flags) {
  std::vector<model::Variant> all = variants_of(c, flags);
  if (flags.sweep == 0) {
    return {*std::find_if(all.begin(), all.end(), [&](auto& v) { return rows <= v.max_rows; })};
  }
  const jit::KernelSpec base = base_of(c, flags);
  std::vector<model::Tile> tiles;
  for (const model::ProductTile& tile : model::ranked_product_tiles(base, rows)) {
    if (static_cast<int64_t>(tiles.size()) == flags.sweep) break;
    tiles.push_back(model::product_tile(base, tile, INT64_MAX));
  }
  return to_variants(base, tiles, flags);
}

/// One product on the device with its inputs.
struct ProductRun {
  const Gpu& gpu;
  const ProductCase& c;
  int64_t rows;
  Values a, w;
  std::vector<float> bias;
  Buffer a_buffer, w_buffer, bias_buffer, out_buffer;

  ProductRun(const Gpu& g, const ProductCase& product, int64_t row_count, DType dtype)
      : gpu(g),
        c(product),
        rows(row_count),
        a(dtype, static_cast<size_t>(row_count * product.k), 1, 1.0F),
        w(dtype, static_cast<size_t>(product.w_rows() * product.k), 2,
          1.0F / std::sqrt(static_cast<float>(product.k))),
        bias(static_cast<size_t>(product.n)) {
    for (size_t i = 0; i < bias.size(); ++i) bias[i] = model::random_normal(3, 0, i, 0, 1);
    a_buffer = gpu.upload(a.bits.data(), a.bytes());
    w_buffer = gpu.upload(w.bits.data(), w.bytes());
    bias_buffer = gpu.upload(bias.data(), bias.size() * 4);
    out_buffer = gpu.allocate(out_bytes() + 2 * kGuard);
  }
  size_t out_bytes() const { return static_cast<size_t>(rows * c.n * 2); }

  void launch(const jit::Kernel& kernel, const model::LaunchRule& rule, const void* a_data,
              const void* w_data, void* out) const {
    const auto count = static_cast<int32_t>(rows);
    must(c.is_geglu ? kernel.launch(*gpu.stream, rule.shape(rows), a_data, w_data, out, count)
                    : kernel.launch(*gpu.stream, rule.shape(rows), a_data, w_data,
                                    bias_buffer.data(), out, count));
  }

  /// The output after one launch on poisoned memory; checks the guards.
  std::vector<uint16_t> output(const model::Variant& variant) const {
    const auto kernel = must(gpu.engine->kernel(variant.spec));
    must(gpu.stream->fill(out_buffer.data(), 0xff, out_buffer.size()));
    launch(*kernel, variant.rule, a_buffer.data(), w_buffer.data(), out_buffer.as<char>() + kGuard);
    must(gpu.stream->synchronize());
    std::vector<uint16_t> all(out_buffer.size() / 2);
    must(gpu.stream->copy_to_host(all.data(), out_buffer.data(), out_buffer.size()));
    must(gpu.stream->synchronize());
    for (size_t i = 0; i < kGuard / 2; ++i) {
      if (all[i] != 0xffff || all[all.size() - 1 - i] != 0xffff) die("wrote outside the output");
    }
    return {all.begin() + kGuard / 2, all.end() - kGuard / 2};
  }

  double reference(int64_t row, int64_t column) const {
    const auto dot = [&](int64_t w_row) {
      double sum = 0;
      for (int64_t i = 0; i < c.k; ++i) {
        sum += static_cast<double>(a[static_cast<size_t>(row * c.k + i)]) *
               static_cast<double>(w[static_cast<size_t>(w_row * c.k + i)]);
      }
      return sum;
    };
    if (c.is_geglu) return gelu(dot(column)) * dot(c.n + column);
    const double x = dot(column) + (c.bias ? bias[static_cast<size_t>(column)] : 0.0F);
    if (c.act == Activation::kRelu) return std::max(x, 0.0);
    return c.act == Activation::kGelu ? gelu(x) : x;
  }

  /// Relative error over some rows, all columns; fails on what was not written.
  double error(const std::vector<uint16_t>& out) const {
    size_t unwritten = 0, first = 0;
    for (size_t i = out.size(); i-- > 0;) {
      if (std::isnan(a.to_float(out[i]))) ++unwritten, first = i;
    }
    if (unwritten > 0) {
      die(std::to_string(unwritten) + " elements are NaN, the first in row " +
          std::to_string(first / c.n) + ", column " + std::to_string(first % c.n));
    }
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < 8; ++i) {
      const int64_t row =
          i == 0 ? rows - 1 : rows * i / 8 + (i * 37) % std::max<int64_t>(1, rows / 8);
      for (int64_t column = 0; column < c.n; ++column) {
        const double wanted = reference(row, column);
        const double got = a.to_float(out[static_cast<size_t>(row * c.n + column)]);
        difference += (got - wanted) * (got - wanted);
        norm += wanted * wanted;
      }
    }
    return std::sqrt(difference / norm);
  }
};

void check_product(const Gpu& gpu, const ProductCase& c, int64_t rows, const Flags& flags) {
  alarm(30);
  const ProductRun run(gpu, c, rows, flags.dtype);
  const double limit = flags.dtype == DType::kBF16 ? 3e-3 : 4e-4;
  std::vector<uint16_t> first;
  for (const model::Variant& variant : variants_of(c, flags)) {
    const std::vector<uint16_t> out = run.output(variant);
    const double error = run.error(out);
    const bool same = run.output(variant) == out, equal = first.empty() || first == out;
    if (first.empty()) first = out;
    std::printf("%-24s rows %-6ld tile %-22s error %.2e%s%s%s\n", c.name().c_str(), rows,
                tile_text(variant).c_str(), error, error > limit ? "  WRONG" : "",
                same ? "" : "  DIFFERS BETWEEN RUNS", equal ? "" : "  differs from first tile");
    std::fflush(stdout);
  }
}

/// Microseconds of one product: with buffers that change, and with the same ones again and again.
struct Times {
  double cold = 0, hot = 0;
};

/// Several sets of buffers, so that weights come from where they come from in a model.
struct ProductBuffers {
  std::vector<Buffer> a, w, out;

  explicit ProductBuffers(const ProductRun& run) {
    const auto out_bytes = static_cast<size_t>(run.rows * run.c.w_rows() * 2);  // of cuBLASLt
    const size_t set = run.a.bytes() + run.w.bytes() + out_bytes;
    for (size_t i = 0; i < std::clamp<size_t>(kManyBytes / set, 1, 100); ++i) {
      a.push_back(run.gpu.upload(run.a.bits.data(), run.a.bytes()));
      w.push_back(run.gpu.upload(run.w.bits.data(), run.w.bytes()));
      out.push_back(run.gpu.allocate(out_bytes));
    }
  }

  /// `launch(a, w, out)` queues one product.
  Times time(const ProductRun& run, const std::function<void(void*, void*, void*)>& launch) const {
    const int count = run.rows >= 16384 ? 10 : 100;
    const auto time_with = [&](size_t sets) {
      return run.gpu.time_us(count, [&](int i) {
        const size_t j = static_cast<size_t>(i) % sets;
        launch(a[j].data(), w[j].data(), out[j].data());
      });
    };
    return {time_with(a.size()), time_with(1)};
  }
};

void bench_product(Gpu& gpu, const ProductCase& c, int64_t rows, const Flags& flags) {
  alarm(30);
  const ProductRun run(gpu, c, rows, flags.dtype);
  const ProductBuffers buffers(run);
  Times blas;
  if (gpu.blas && gpu.blas->plan(flags.dtype == DType::kBF16, rows, c.w_rows(), c.k)) {
    blas = buffers.time(run, [&](void* a, void* w, void* out) {
      if (!gpu.blas->run(a, w, out, gpu.handle())) die("cublasLtMatmul fails");
    });
  }
  const double mega_flops = 2e-6 * static_cast<double>(rows * c.w_rows() * c.k);
  for (const model::Variant& variant : timed_variants(c, rows, flags)) {
    alarm(30);
    const auto kernel = must(gpu.engine->kernel(variant.spec));
    const Times own = buffers.time(
        run, [&](void* a, void* w, void* out) { run.launch(*kernel, variant.rule, a, w, out); });
    std::printf(
        "%-24s rows %-6ld tile %-22s %8.2f us %4.0f TFLOP/s | cublas %8.2f us %4.0f | "
        "ratio %.3f | hot %.2f us, %.3f\n",
        c.name().c_str(), rows, tile_text(variant).c_str(), own.cold, mega_flops / own.cold,
        blas.cold, blas.cold > 0 ? mega_flops / blas.cold : 0.0, blas.cold / own.cold, own.hot,
        blas.hot / own.hot);
    std::fflush(stdout);
  }
}

const std::vector<ProductCase>& product_cases() {
  static const std::vector<ProductCase> kCases = {
      {false, 2304, 768, false, Activation::kNone},  {false, 768, 768, false, Activation::kNone},
      {true, 1152, 768, false, Activation::kNone},   {false, 768, 1152, false, Activation::kNone},
      {false, 3072, 768, true, Activation::kRelu},   {false, 768, 3072, true, Activation::kNone},
      {false, 768, 768, true, Activation::kGelu},    {false, 3072, 1024, false, Activation::kNone},
      {false, 1024, 1024, false, Activation::kNone}, {true, 2624, 1024, false, Activation::kNone},
      {false, 1024, 2624, false, Activation::kNone}, {false, 4096, 1024, true, Activation::kRelu},
      {false, 1024, 4096, true, Activation::kNone}};
  return kCases;
}

}  // namespace

void run_products(Gpu& gpu, const Flags& flags) {
  std::vector<ProductCase> cases;
  long n = 0, k = 0;
  const bool one = sscanf(flags.shape.c_str(), "%ld,%ld", &n, &k) == 2;
  for (const ProductCase& c : product_cases()) {
    if (!flags.only.empty() && flags.only != (c.is_geglu ? "geglu" : "gemm")) continue;
    if (!one || (c.n == n && c.k == k)) cases.push_back(c);
  }
  if (one && cases.empty()) {
    cases.push_back({flags.only == "geglu", n, k, false, Activation::kNone});
  }
  const auto rows_of = [&](std::vector<int64_t> rows) {
    return flags.rows > 0 ? std::vector<int64_t>{flags.rows} : std::move(rows);
  };
  const std::vector<int64_t> bench_rows = rows_of({32768, 4096, 1024, 256, 128, 64});
  std::vector<jit::KernelSpec> specs;
  for (const ProductCase& c : cases) {
    if (flags.check) {
      for (const model::Variant& variant : variants_of(c, flags)) specs.push_back(variant.spec);
    }
    for (const int64_t rows : flags.bench ? bench_rows : std::vector<int64_t>{}) {
      for (const auto& variant : timed_variants(c, rows, flags)) specs.push_back(variant.spec);
    }
  }
  warm(gpu, specs);
  if (flags.check) {
    for (const ProductCase& c : cases) {
      for (const int64_t rows : rows_of({1, 77, 1000})) check_product(gpu, c, rows, flags);
    }
    if (!one) {  // ragged columns and k
      for (const ProductCase& c : {ProductCase{false, 200, 136, true, Activation::kGelu},
                                   ProductCase{true, 136, 72, false, Activation::kNone}}) {
        if (flags.only.empty() || flags.only == (c.is_geglu ? "geglu" : "gemm")) {
          check_product(gpu, c, 1333, flags);
        }
      }
    }
  }
  if (flags.bench) {
    for (const int64_t rows : bench_rows) {
      for (const ProductCase& c : cases) bench_product(gpu, c, rows, flags);
    }
  }
}

}  // namespace laya::test
