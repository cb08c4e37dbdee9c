// The part of hopper_check for attention_sm90.
#include <cmath>

#include "tests/gpu/hopper_support.h"

namespace laya::test {
namespace {

constexpr uint16_t kPoison = 0xffff;  // a NaN in both dtypes

/// Packed sequences with rows of no sequence, which hold NaN, between and behind them.
struct Batch {
  std::vector<int32_t> lengths;
  std::vector<int32_t> first_rows;  // of each sequence
  std::vector<int32_t> cu_seqlens;  // as the kernel wants them: padding counts as sequences too
  int64_t rows = 0;

  Batch(std::vector<int32_t> sequence_lengths, int32_t padding)
      : lengths(std::move(sequence_lengths)) {
    for (const int32_t length : lengths) {
      first_rows.push_back(static_cast<int32_t>(rows));
      cu_seqlens.push_back(static_cast<int32_t>(rows));
      rows += length;
      if (padding > 0) cu_seqlens.push_back(static_cast<int32_t>(rows));
      rows += padding;
    }
    cu_seqlens.push_back(static_cast<int32_t>(rows));
  }

  /// (sequence, first query), with two tiles that do nothing.
  std::vector<int32_t> tiles(int64_t queries) const {
    const size_t step = cu_seqlens.size() > lengths.size() + 1 ? 2 : 1;
    std::vector<int32_t> result = {-1, 0};
    for (size_t i = 0; i < lengths.size(); ++i) {
      for (int64_t q = 0; q < lengths[i]; q += queries) {
        result.push_back(static_cast<int32_t>(i * step));
        result.push_back(static_cast<int32_t>(q));
      }
    }
    result.insert(result.end(), {-1, 0});
    return result;
  }
};

jit::KernelSpec base_of(int64_t heads, int64_t window, DType dtype) {
  jit::KernelSpec spec("attention", {jit::Backend::kCuda, "sm_90a"});
  spec.set("T", to_string(dtype)).set("HEADS", heads).set("HEAD_DIM", int64_t{64});
  return spec.set("WINDOW", window);
}

struct AttentionRun {
  const Gpu& gpu;
  const Batch& batch;
  int64_t heads, window;
  Values qkv;
  Buffer qkv_buffer, cu_buffer, out_buffer;

  AttentionRun(const Gpu& g, const Batch& b, int64_t head_count, int64_t window_size, DType dtype)
      : gpu(g),
        batch(b),
        heads(head_count),
        window(window_size),
        qkv(dtype, static_cast<size_t>(b.rows * 3 * head_count * 64), 5, 1.5F) {
    for (size_t i = 0; i < b.lengths.size(); ++i) {
      const int64_t end = i + 1 < b.lengths.size() ? b.first_rows[i + 1] : b.rows;
      const auto from = (b.first_rows[i] + b.lengths[i]) * 3 * heads * 64;
      std::fill(qkv.bits.begin() + from, qkv.bits.begin() + end * 3 * heads * 64, kPoison);
    }
    qkv_buffer = gpu.upload(qkv.bits.data(), qkv.bytes());
    cu_buffer = gpu.upload(b.cu_seqlens.data(), b.cu_seqlens.size() * 4);
    out_buffer = gpu.allocate(static_cast<size_t>(b.rows * heads * 64 * 2));
  }

  jit::KernelSpec base() const { return base_of(heads, window, qkv.dtype); }

  double at(int64_t row, int64_t part, int64_t head, int64_t i) const {
    return qkv[static_cast<size_t>(((row * 3 + part) * heads + head) * 64 + i)];
  }

  /// One row of one head in double.
  std::vector<double> reference(size_t sequence, int64_t query, int64_t head) const {
    const int64_t first = batch.first_rows[sequence], length = batch.lengths[sequence];
    const int64_t begin = window > 0 ? std::max<int64_t>(0, query - window) : 0;
    const int64_t end = window > 0 ? std::min(length, query + window + 1) : length;
    std::vector<double> out(64, 0.0);
    double sum = 0;
    for (int64_t key = begin; key < end; ++key) {
      double score = 0;
      for (int64_t i = 0; i < 64; ++i) {
        score += at(first + query, 0, head, i) * at(first + key, 1, head, i);
      }
      const double p = std::exp(score / 8);
      sum += p;
      for (int64_t i = 0; i < 64; ++i) {
        out[static_cast<size_t>(i)] += p * at(first + key, 2, head, i);
      }
    }
    for (double& x : out) x /= sum;
    return out;
  }

  std::vector<uint16_t> output(const model::Variant& variant) const {
    const auto kernel = must(gpu.engine->kernel(variant.spec));
    const std::vector<int32_t> tiles = batch.tiles(variant.rule.rows_per_block);
    const Buffer tile_buffer = gpu.upload(tiles.data(), tiles.size() * 4);
    const auto n = static_cast<int32_t>(tiles.size() / 2);
    must(gpu.stream->fill(out_buffer.data(), 0xff, out_buffer.size()));
    must(kernel->launch(*gpu.stream, variant.rule.shape(n * variant.rule.rows_per_block),
                        qkv_buffer.data(), out_buffer.data(), cu_buffer.data(), tile_buffer.data(),
                        n));
    must(gpu.stream->synchronize());
    std::vector<uint16_t> out(out_buffer.size() / 2);
    must(gpu.stream->copy_to_host(out.data(), out_buffer.data(), out_buffer.size()));
    must(gpu.stream->synchronize());
    return out;
  }

  /// Every row of a sequence is a number and no other row is touched.
  void check_written(const std::vector<uint16_t>& out) const {
    size_t sequence = 0;
    for (int64_t row = 0; row < batch.rows; ++row) {
      while (sequence + 1 < batch.lengths.size() && row >= batch.first_rows[sequence + 1]) {
        ++sequence;
      }
      const bool belongs = row < batch.first_rows[sequence] + batch.lengths[sequence];
      for (int64_t i = 0; i < heads * 64; ++i) {
        const uint16_t bits = out[static_cast<size_t>(row * heads * 64 + i)];
        if (belongs ? std::isnan(qkv.to_float(bits)) : bits != kPoison) {
          die("row " + std::to_string(row) + ", column " + std::to_string(i) +
              (belongs ? " is NaN" : " belongs to no sequence and was written"));
        }
      }
    }
  }

  double error(const std::vector<uint16_t>& out) const {
    double difference = 0, norm = 0;
    for (size_t s = 0; s < batch.lengths.size(); ++s) {
      const int64_t length = batch.lengths[s];
      for (int64_t i = 0; i < 9; ++i) {
        const int64_t query = i == 8 ? length - 1 : length * i / 8, head = (i * 5 + 1) % heads;
        const std::vector<double> wanted = reference(s, query, head);
        for (size_t j = 0; j < 64; ++j) {
          const auto at_out = static_cast<size_t>(
              ((batch.first_rows[s] + query) * heads + head) * 64 + static_cast<int64_t>(j));
          const double got = qkv.to_float(out[at_out]);
          difference += (got - wanted[j]) * (got - wanted[j]);
          norm += wanted[j] * wanted[j];
        }
      }
    }
    return std::sqrt(difference / norm);
  }
};

/// Tiles worth comparing; the first is what the model uses.
std::vector<model::Variant> variants_of(const jit::KernelSpec& base, const Flags& flags) {
  std::vector<model::Tile> tiles = model::sm90_tiles(base);
  const int64_t keys = model::int_param(base, "WINDOW") > 0 ? 64 : 128;
  tiles.push_back(model::attention_tile(base, 64, keys, INT64_MAX));
  return to_variants(base, tiles, flags);
}

std::string tile_text(const model::Variant& variant) {
  return std::to_string(model::int_param(variant.spec, "BQ")) + "x" +
         std::to_string(model::int_param(variant.spec, "KEYS"));
}

void check_attention(const Gpu& gpu, const Flags& flags) {
  const Batch batch({1, 5, 64, 77, 128, 129, 200, 256, 300, 1000, 63, 190}, 3);
  const double limit = flags.dtype == DType::kBF16 ? 6e-3 : 8e-4;
  for (const int64_t window : {0, 64, 5}) {
    alarm(30);
    const AttentionRun run(gpu, batch, 3, window, flags.dtype);
    std::vector<uint16_t> first;
    for (const model::Variant& variant : variants_of(run.base(), flags)) {
      const std::vector<uint16_t> out = run.output(variant);
      run.check_written(out);
      const double error = run.error(out);
      const bool same = run.output(variant) == out, equal = first.empty() || first == out;
      if (first.empty()) first = out;
      std::printf("attention window %-4ld tile %-13s error %.2e%s%s%s\n", window,
                  tile_text(variant).c_str(), error, error > limit ? "  WRONG" : "",
                  same ? "" : "  DIFFERS BETWEEN RUNS", equal ? "" : "  differs from first tile");
      std::fflush(stdout);
    }
  }
}

/// Pairs of query and key that a window lets through.
double pairs(const Batch& batch, int64_t window) {
  double count = 0;
  for (const int32_t length : batch.lengths) {
    for (int64_t query = 0; query < length; ++query) {
      const int64_t begin = window > 0 ? std::max<int64_t>(0, query - window) : 0;
      const int64_t end = window > 0 ? std::min<int64_t>(length, query + window + 1) : length;
      count += static_cast<double>(end - begin);
    }
  }
  return count;
}

void bench_attention(const Gpu& gpu, const char* name, const Batch& batch, int64_t heads,
                     int64_t window, const Flags& flags) {
  alarm(30);
  const AttentionRun run(gpu, batch, heads, window, flags.dtype);
  for (const model::Variant& variant : variants_of(run.base(), flags)) {
    const auto kernel = must(gpu.engine->kernel(variant.spec));
    const std::vector<int32_t> tiles = batch.tiles(variant.rule.rows_per_block);
    const Buffer tile_buffer = gpu.upload(tiles.data(), tiles.size() * 4);
    const auto n = static_cast<int32_t>(tiles.size() / 2);
    const double us = gpu.time_us(20, [&](int) {
      must(kernel->launch(*gpu.stream, variant.rule.shape(n * variant.rule.rows_per_block),
                          run.qkv_buffer.data(), run.out_buffer.data(), run.cu_buffer.data(),
                          tile_buffer.data(), n));
    });
    const double flops = pairs(batch, window) * static_cast<double>(heads) * 64 * 4;
    const double bytes = static_cast<double>(batch.rows * heads * 64 * 2 * 4);
    std::printf(
        "attention %-10s heads %-3ld window %-3ld tile %-13s %8.2f us %4.0f TFLOP/s %5.0f "
        "GB/s\n",
        name, heads, window, tile_text(variant).c_str(), us, flops / us * 1e-6, bytes / us * 1e-3);
    std::fflush(stdout);
  }
}

}  // namespace

void run_attention(Gpu& gpu, const Flags& flags) {
  std::vector<jit::KernelSpec> specs;
  for (const int64_t heads : {3, 12, 16}) {
    for (const int64_t window : {0, 64, 5}) {
      if (heads == 3 ? !flags.check : !flags.bench || window == 5) continue;
      const jit::KernelSpec base = base_of(heads, window, flags.dtype);
      for (const model::Variant& v : variants_of(base, flags)) specs.push_back(v.spec);
    }
  }
  warm(gpu, specs);
  if (flags.check) check_attention(gpu, flags);
  if (!flags.bench) return;
  std::vector<int32_t> uneven;
  for (int i = 0; i < 64; ++i) uneven.push_back(32 + (i * 173) % 960);
  std::sort(uneven.begin(), uneven.end(), std::greater<>());
  for (const int64_t heads : {12, 16}) {
    for (const int64_t window : {0, 64}) {
      bench_attention(gpu, "32 x 1024", Batch(std::vector<int32_t>(32, 1024), 0), heads, window,
                      flags);
      bench_attention(gpu, "uneven", Batch(uneven, 0), heads, window, flags);
      bench_attention(gpu, "1 x 1024", Batch({1024}, 0), heads, window, flags);
      bench_attention(gpu, "1 x 96", Batch({96}, 0), heads, window, flags);
    }
  }
}

}  // namespace laya::test
