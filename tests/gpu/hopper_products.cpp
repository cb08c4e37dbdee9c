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
  return text;
}

/// The Hopper variants of a product, or the one that --tile asks for.
std::vector<model::Variant> variants_of(const ProductCase& c, const Flags& flags) {
  const jit::Target target{jit::Backend::kCuda, "sm_90a"};
  const jit::KernelSpec base = [&] {
    jit::KernelSpec spec(c.is_geglu ? "gemm_geglu" : "gemm", target);
    spec.set("T", to_string(flags.dtype)).set("N", c.n).set("K", c.k);
    static const char* const kActs[] = {"none", "relu", "gelu"};
    if (!c.is_geglu) {
      spec.set("BIAS", c.bias ? "yes" : "no").set("ACT", kActs[static_cast<int>(c.act)]);
    }
    return spec;
  }();
  std::vector<model::Tile> tiles = model::sm90_tiles(base);
  if (!flags.tile.empty()) {
    long v[4] = {};
    if (sscanf(flags.tile.c_str(), "%ld,%ld,%ld,%ld", &v[0], &v[1], &v[2], &v[3]) != 4) {
      die("--tile needs four numbers");
    }
    tiles = {model::product_tile(base, {v[0], v[1], v[2], v[3]}, INT64_MAX)};
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
    std::printf("%-24s rows %-6ld tile %-16s error %.2e%s%s%s\n", c.name().c_str(), rows,
                tile_text(variant).c_str(), error, error > limit ? "  WRONG" : "",
                same ? "" : "  DIFFERS BETWEEN RUNS", equal ? "" : "  differs from first tile");
    std::fflush(stdout);
  }
}

/// Times the variant for these rows beside cuBLASLt without epilogue; several sets of buffers, so
/// that weights come from where they come from in a model.
void bench_product(Gpu& gpu, const ProductCase& c, int64_t rows, const Flags& flags) {
  alarm(30);
  const ProductRun run(gpu, c, rows, flags.dtype);
  const size_t a_bytes = run.a.bytes(), w_bytes = run.w.bytes();
  const size_t blas_bytes = static_cast<size_t>(rows * c.w_rows() * 2);
  const size_t set = a_bytes + w_bytes + blas_bytes;
  const int sets = static_cast<int>(std::clamp<size_t>(kManyBytes / set, 1, 100));
  std::vector<Buffer> as, ws, outs;
  for (int i = 0; i < sets; ++i) {
    as.push_back(gpu.upload(run.a.bits.data(), a_bytes));
    ws.push_back(gpu.upload(run.w.bits.data(), w_bytes));
    outs.push_back(gpu.allocate(blas_bytes));
  }
  const int count = rows >= 16384 ? 10 : 100;
  const double flops = 2.0 * static_cast<double>(rows * c.w_rows() * c.k);
  double blas_us = 0, blas_hot_us = 0;
  const bool is_bf16 = flags.dtype == DType::kBF16;
  if (gpu.blas && gpu.blas->plan(is_bf16, rows, c.w_rows(), c.k)) {
    const auto time = [&](int used) {
      return gpu.time_us(count, [&](int i) {
        const auto j = static_cast<size_t>(i % used);
        if (!gpu.blas->run(as[j].data(), ws[j].data(), outs[j].data(), gpu.handle())) {
          die("cublasLtMatmul fails");
        }
      });
    };
    blas_us = time(sets);
    blas_hot_us = time(1);
  }
  const std::vector<model::Variant> variants = variants_of(c, flags);
  const auto chosen = std::find_if(variants.begin(), variants.end(),
                                   [&](const auto& v) { return rows <= v.max_rows; });
  const auto kernel = must(gpu.engine->kernel(chosen->spec));
  const auto time = [&](int used) {
    return gpu.time_us(count, [&](int i) {
      const auto j = static_cast<size_t>(i % used);
      run.launch(*kernel, chosen->rule, as[j].data(), ws[j].data(), outs[j].data());
    });
  };
  const double us = time(sets), hot_us = time(1);
  std::printf(
      "%-24s rows %-6ld tile %-16s %8.2f us %4.0f TFLOP/s | cublas %8.2f us %4.0f | "
      "ratio %.3f (hot %.2f us, %.3f)\n",
      c.name().c_str(), rows, tile_text(*chosen).c_str(), us, flops / us * 1e-6, blas_us,
      blas_us > 0 ? flops / blas_us * 1e-6 : 0.0, blas_us / us, hot_us, blas_hot_us / hot_us);
  std::fflush(stdout);
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
  std::vector<jit::KernelSpec> specs;
  for (const ProductCase& c : cases) {
    for (const model::Variant& variant : variants_of(c, flags)) specs.push_back(variant.spec);
  }
  warm(gpu, specs);
  const auto rows_of = [&](std::vector<int64_t> rows) {
    return flags.rows > 0 ? std::vector<int64_t>{flags.rows} : std::move(rows);
  };
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
    for (const int64_t rows : rows_of({32768, 4096, 1024, 256, 128, 64})) {
      for (const ProductCase& c : cases) bench_product(gpu, c, rows, flags);
    }
  }
}

}  // namespace laya::test
