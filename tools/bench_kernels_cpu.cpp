// The CPU's part of `laya bench kernels`.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <thread>

#include "jit/device.h"
#include "jit/engine.h"
#include "model/convert.h"
#include "model/ops.h"
#include "tools/bench_kernels.h"
#include "tools/console.h"
#include "tools/openblas.h"
#include "tools/progress.h"

namespace laya::tools {
namespace {

using model::DType;

/// How the implementations take turns.
struct Turns {
  /// How long each runs in a round, at least. The system may need some milliseconds to move threads
  /// that wake on one core to two.
  double least_seconds;
  /// Longer than the threads of a library look for more work before they sleep, 10 to 20 ms those
  /// of OpenMP: a pause after each implementation keeps its threads from taking the next one's
  /// time.
  std::chrono::milliseconds pause;
};
constexpr Turns kTurnsOfOneThread{4e-3, std::chrono::milliseconds(12)};
constexpr Turns kTurnsOfThreads{20e-3, std::chrono::milliseconds(40)};

const char* name_of(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::kNone: return "gemm";
    case Epilogue::kBiasGelu: return "gemm_gelu";
    case Epilogue::kGeglu: return "gemm_geglu";
    case Epilogue::kResidual: return "gemm_residual";
  }
  return "";
}

std::string shape_of(const Product& product) {
  return std::to_string(product.rows) + "x" + std::to_string(product.n) + "x" +
         std::to_string(product.k);
}

double gflop_of(const Product& product) {
  return 2e-9 * static_cast<double>(product.rows) * static_cast<double>(product.weight_rows()) *
         static_cast<double>(product.k);
}

model::Op op_of(const Product& product, const jit::Target& target) {
  const auto& [dtype, rows, n, k, epilogue] = product;
  switch (epilogue) {
    case Epilogue::kGeglu: return model::gemm_geglu_op(target, dtype, n, k);
    case Epilogue::kResidual: return model::gemm_residual_op(target, dtype, n, k);
    case Epilogue::kBiasGelu: return model::gemm_op(target, dtype, n, k, model::Activation::kGelu);
    case Epilogue::kNone: break;
  }
  return model::gemm_op(target, dtype, n, k, model::Activation::kNone);
}

/// An array of a product.
class Matrix {
 public:
  static Result<Matrix> create(jit::Device& device, int64_t count, DType dtype) {
    const auto bytes = static_cast<size_t>(count * model::size_of(dtype));
    Matrix matrix(dtype, static_cast<size_t>(count));
    LAYA_ASSIGN(matrix.buffer_, device.allocate(bytes));
    std::memset(matrix.data(), 0xff, bytes);
    return matrix;
  }

  void* data() const { return buffer_.data(); }
  const float* floats() const { return buffer_.as<float>(); }

  /// Uniform in [-scale, scale).
  void fill(std::mt19937& random, float scale) {
    std::uniform_real_distribution<float> uniform(-scale, scale);
    for (size_t i = 0; i < count_; ++i) {
      if (dtype_ == DType::kF32) {
        buffer_.as<float>()[i] = uniform(random);
      } else {
        buffer_.as<uint16_t>()[i] = model::float_to_bf16(uniform(random));
      }
    }
  }

  float at(size_t i) const {
    return dtype_ == DType::kF32 ? buffer_.as<float>()[i]
                                 : model::bf16_to_float(buffer_.as<uint16_t>()[i]);
  }

  /// Where the two differ most. Results are of order 1, so that this is an error in last places.
  static float largest_difference(const Matrix& x, const Matrix& y) {
    float largest = 0;
    for (size_t i = 0; i < x.count_; ++i) {
      const float difference = std::fabs(x.at(i) - y.at(i));
      if (!(difference <= largest)) largest = difference;  // NaN too
    }
    return largest;
  }

 private:
  Matrix(DType dtype, size_t count) : dtype_(dtype), count_(count) {}

  jit::Buffer buffer_;
  DType dtype_;
  size_t count_;
};

/// One way to compute a product.
struct Contestant {
  std::string name;
  std::function<Result<void>()> run;
  Matrix* out;
  Samples seconds = {};  ///< of one run
  /// How many times as long as the first contestant it takes, in the same round: whatever slows the
  /// machine for a while slows both.
  Samples slowdown = {};
};

/// What measures one run. The time that one thread computes does not depend on what else the
/// machine does; of several threads only the clock on the wall tells when all are done.
using Stopwatch = double (*)(const std::function<void()>& work);

/// Seconds of one run: the least of as many as take `least_seconds`, since whatever else the
/// machine does only adds to it; after one that is not measured.
Result<double> time_once(const Contestant& contestant, Stopwatch stopwatch, double least_seconds) {
  Result<void> outcome;
  const auto run = [&] {
    if (outcome) outcome = contestant.run();
  };
  run();
  double least = stopwatch(run);
  for (double total = least; outcome && total < least_seconds;) {
    const double seconds = stopwatch(run);
    least = std::min(least, seconds);
    total += seconds;
  }
  LAYA_TRY(outcome);
  return least;
}

class CpuKernelBench {
 public:
  explicit CpuKernelBench(const KernelBench& bench)
      : bench_(bench), device_(jit::open_cpu_device(bench.threads)) {}

  Result<std::vector<Figure>> run() {
    LAYA_ASSIGN(const jit::Options options, command_options());
    LAYA_ASSIGN(engine_, jit::Engine::create(options));
    LAYA_ASSIGN(stream_, device_->create_stream());
    open_references();
    Progress progress("measuring", std::ssize(bench_.products));
    for (size_t i = 0; i < bench_.products.size(); ++i) {
      LAYA_TRY(measure(bench_.products[i]));
      progress.update(static_cast<int64_t>(i + 1), shape_of(bench_.products[i]));
    }
    add_summaries();
    return std::move(figures_);
  }

 private:
  void open_references() {
    const int threads = device_->processor_count();
    if (auto opened = Onednn::open(bench_.onednn, threads)) {
      onednn_ = *std::move(opened);
      note("beside " + onednn_->name() + ", " + std::to_string(threads) + " threads each");
    } else {
      note(opened.error().message);
    }
    const bool has_fp32 = std::any_of(bench_.products.begin(), bench_.products.end(),
                                      [](const Product& p) { return has_openblas(p); });
    if (!has_fp32) return;
    if (auto opened = Openblas::open(threads)) {
      openblas_ = *std::move(opened);
      note("beside " + openblas_->name() + ", " + std::to_string(threads) + " threads each");
    } else {
      note(opened.error().message);
    }
  }

  static bool has_openblas(const Product& product) {
    return product.dtype == DType::kF32 && product.epilogue == Epilogue::kNone;
  }

  Result<void> measure(const Product& product) {
    const auto& [dtype, rows, n, k, epilogue] = product;
    const int64_t results = rows * n;
    LAYA_ASSIGN(Matrix a, Matrix::create(*device_, rows * k, dtype));
    LAYA_ASSIGN(Matrix w, Matrix::create(*device_, product.weight_rows() * k, dtype));
    LAYA_ASSIGN(Matrix bias, Matrix::create(*device_, n, DType::kF32));
    LAYA_ASSIGN(Matrix out, Matrix::create(*device_, results, product.out_dtype()));
    LAYA_ASSIGN(Matrix onednn_out, Matrix::create(*device_, results, product.out_dtype()));
    LAYA_ASSIGN(Matrix openblas_out, Matrix::create(*device_, results, dtype));
    std::mt19937 random(static_cast<uint32_t>(rows * n + k));
    a.fill(random, 1);
    w.fill(random, std::sqrt(9.0F / static_cast<float>(k)));  // results of standard deviation 1
    bias.fill(random, 1);

    LAYA_ASSIGN(const Matrix packed, pack(product, w));
    std::vector<Contestant> contestants;
    LAYA_ASSIGN(auto ours, our_product(product, a, packed, bias, out));
    contestants.push_back({"laya", std::move(ours), &out});
    std::unique_ptr<OnednnProduct> prepared;
    if (onednn_ != nullptr) {
      LAYA_ASSIGN(prepared,
                  onednn_->prepare(product, a.data(), w.data(), bias.floats(), onednn_out.data()));
      contestants.push_back({"oneDNN", [&] { return prepared->run(); }, &onednn_out});
    }
    if (openblas_ && has_openblas(product)) {
      contestants.push_back({"OpenBLAS",
                             [&]() -> Result<void> {
                               openblas_->multiply(a.floats(), w.floats(),
                                                   static_cast<float*>(openblas_out.data()), rows,
                                                   n, k);
                               return {};
                             },
                             &openblas_out});
    }
    LAYA_TRY(measure(contestants));
    LAYA_TRY(compare(product, contestants, random));
    add_figures(product, contestants);
    return {};
  }

  /// `w` in the layout that our product reads.
  Result<Matrix> pack(const Product& product, const Matrix& w) {
    const auto& [dtype, rows, n, k, epilogue] = product;
    const bool is_geglu = epilogue == Epilogue::kGeglu;
    const jit::Target& target = device_->target();
    LAYA_ASSIGN(
        Matrix packed,
        Matrix::create(*device_, model::packed_weight_size(target, dtype, n, k, is_geglu), dtype));
    const model::Op op = model::pack_weight_op(target, dtype, is_geglu);
    const model::Variant& variant = op.choose(n);
    LAYA_ASSIGN(const auto kernel, engine_->kernel(variant.spec));
    LAYA_TRY(kernel->launch(*stream_, variant.rule.shape(n), w.data(), packed.data(),
                            static_cast<int32_t>(n), static_cast<int32_t>(k)));
    return packed;
  }

  Result<std::function<Result<void>()>> our_product(const Product& product, const Matrix& a,
                                                    const Matrix& w, const Matrix& bias,
                                                    const Matrix& out) {
    const model::Op op = op_of(product, device_->target());
    const model::Variant& variant = op.choose(product.rows);
    LAYA_ASSIGN(const auto kernel, engine_->kernel(variant.spec));
    const auto rows = static_cast<int32_t>(product.rows);
    const jit::LaunchShape grid = variant.rule.shape(rows);
    jit::Stream& stream = *stream_;
    if (product.epilogue == Epilogue::kGeglu) {
      return [&, kernel, grid, rows] {
        return kernel->launch(stream, grid, a.data(), w.data(), out.data(), rows);
      };
    }
    void* const added = product.epilogue == Epilogue::kBiasGelu ? bias.data() : nullptr;
    return [&, kernel, grid, rows, added] {
      return kernel->launch(stream, grid, a.data(), w.data(), added, out.data(), rows);
    };
  }

  Result<void> measure(std::vector<Contestant>& contestants) const {
    const bool is_one = device_->processor_count() == 1;
    const Stopwatch stopwatch = is_one ? computing_time_of : time_of;
    const Turns& turns = is_one ? kTurnsOfOneThread : kTurnsOfThreads;
    std::vector<double> seconds(contestants.size());
    for (int round = 0; round < bench_.rounds; ++round) {
      for (size_t i = 0; i < contestants.size(); ++i) {
        // Everyone goes first in turn.
        const size_t turn = (i + static_cast<size_t>(round)) % contestants.size();
        LAYA_ASSIGN(seconds[turn], time_once(contestants[turn], stopwatch, turns.least_seconds));
        if (contestants.size() > 1) std::this_thread::sleep_for(turns.pause);
      }
      for (size_t i = 0; i < contestants.size(); ++i) {
        contestants[i].seconds.add(seconds[i]);
        contestants[i].slowdown.add(seconds[i] / seconds.front());
      }
    }
    return {};
  }

  /// A figure beside a reference that computes something else would mean nothing.
  static Result<void> compare(const Product& product, const std::vector<Contestant>& contestants,
                              const std::mt19937& random) {
    for (const Contestant& contestant : contestants) {
      std::mt19937 same = random;
      contestant.out->fill(same, 1);  // what a residual is added to
      LAYA_TRY(contestant.run());
    }
    const float allowed = product.dtype == DType::kF32 ? 1e-4F : 0.1F;
    for (const Contestant& other : contestants) {
      const float difference = Matrix::largest_difference(*contestants.front().out, *other.out);
      if (difference <= allowed) continue;
      return fail(ErrorKind::kInternal, std::string(name_of(product.epilogue)) + " " +
                                            shape_of(product) + ": " + other.name +
                                            " computes something else; the largest difference is " +
                                            std::to_string(difference));
    }
    return {};
  }

  void add_figures(const Product& product, const std::vector<Contestant>& contestants) {
    const double gflop = gflop_of(product);
    const Contestant& ours = contestants.front();
    Figure figure{name_of(product.epilogue),
                  shape_of(product),
                  gflop / ours.seconds.quantile(0.5),
                  "GFLOP/s",
                  {},
                  {},
                  {}};
    figure.p50 = figure.value;
    figure.p95 = gflop / ours.seconds.quantile(0.95);
    if (contestants.size() == 1) figures_.push_back(figure);
    for (size_t i = 1; i < contestants.size(); ++i) {
      figure.name = std::string(name_of(product.epilogue)) + " / " + contestants[i].name;
      figure.reference = figure.value / contestants[i].slowdown.quantile(0.5);
      const Ratio ratio{figure.value / *figure.reference, figure.shape};
      ratios_[figure.name].push_back(ratio);
      if (product.epilogue != Epilogue::kNone) {
        ratios_["all epilogues / " + contestants[i].name].push_back(ratio);
      }
      figures_.push_back(figure);
    }
  }

  void add_summaries() {
    for (const auto& [name, ratios] : ratios_) {
      double logarithms = 0;
      for (const Ratio& ratio : ratios) logarithms += std::log(ratio.value);
      const double mean = std::exp(logarithms / static_cast<double>(ratios.size()));
      const auto worst =
          std::min_element(ratios.begin(), ratios.end(),
                           [](const Ratio& x, const Ratio& y) { return x.value < y.value; });
      figures_.push_back({name + ": geometric mean",
                          std::to_string(ratios.size()) + " shapes",
                          mean,
                          "ratio",
                          {},
                          {},
                          {}});
      figures_.push_back({name + ": worst", worst->shape, worst->value, "ratio", {}, {}, {}});
    }
  }

  struct Ratio {
    double value;
    std::string shape;
  };

  const KernelBench& bench_;
  std::shared_ptr<jit::Device> device_;
  std::shared_ptr<jit::Engine> engine_;
  std::unique_ptr<jit::Stream> stream_;
  std::unique_ptr<Onednn> onednn_;
  std::optional<Openblas> openblas_;
  std::vector<Figure> figures_;
  std::map<std::string, std::vector<Ratio>> ratios_;
};

}  // namespace

Result<std::vector<Figure>> bench_cpu_kernels(const KernelBench& bench) {
  return CpuKernelBench(bench).run();
}

}  // namespace laya::tools
