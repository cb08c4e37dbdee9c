// Checks and times the Hopper templates on a GPU: a program for people, not a test of CTest.
//
//   hopper_check [--check] [--bench] [--only gemm|geglu|attention] [--dtype bf16|fp16]
//                [--rows R] [--shape N,K] [--tile ROWS,COLUMNS,CLUSTER,CONSUMERS,SHARED]
//                [--sweep COUNT] [--spin LIMIT]
//
// Without --check and --bench it does both. A part that hangs is ended after 30 seconds; --spin
// makes a kernel that waits in vain trap instead (a few million tries are a second).
// --sweep times the COUNT tiles that should be fastest instead of the chosen one.
// Results are compared with products in double; outputs begin as NaN and are surrounded by guards.
#include <signal.h>

#include "tests/gpu/hopper_support.h"

namespace laya::test {

std::vector<model::Variant> to_variants(const jit::KernelSpec& base,
                                        const std::vector<model::Tile>& tiles, const Flags& flags) {
  std::vector<model::Variant> variants;
  for (const model::Tile& tile : tiles) {
    jit::KernelSpec spec(tile.template_name, base.target());
    for (const auto* params : {&base.params(), &tile.params}) {
      for (const jit::Param& param : *params) {
        std::visit([&](const auto& value) { spec.set(param.name, value); }, param.value);
      }
    }
    spec.set("SPIN_LIMIT", flags.spin);
    variants.push_back({tile.max_rows, std::move(spec), tile.rule});
  }
  return variants;
}

void warm(const Gpu& gpu, const std::vector<jit::KernelSpec>& specs) {
  alarm(120);
  for (const jit::BuildReport& report : gpu.engine->warm(specs)) {
    if (!report.outcome) must(Result<void>(tl::make_unexpected(report.outcome.error())));
  }
}

namespace {

Flags parse(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 >= argc) die(name + " needs a value");
      return argv[++i];
    };
    if (name == "--check")
      flags.check = true;
    else if (name == "--bench")
      flags.bench = true;
    else if (name == "--only")
      flags.only = value();
    else if (name == "--tile")
      flags.tile = value();
    else if (name == "--shape")
      flags.shape = value();
    else if (name == "--rows")
      flags.rows = std::stoll(value());
    else if (name == "--spin")
      flags.spin = std::stoll(value());
    else if (name == "--sweep")
      flags.sweep = std::stoll(value());
    else if (name == "--dtype")
      flags.dtype = must(model::parse_dtype(value()));
    else
      die("unknown option " + name);
  }
  if (!flags.check && !flags.bench) flags.check = flags.bench = true;
  return flags;
}

extern "C" void on_alarm(int) {
  constexpr char kText[] = "FAILED: no end after 30 seconds\n";
  if (write(1, kText, sizeof(kText) - 1) < 0) _exit(4);
  _exit(3);
}

int run(int argc, char** argv) {
  const Flags flags = parse(argc, argv);
  signal(SIGALRM, on_alarm);
  alarm(60);
  Gpu gpu;
  gpu.engine = must(jit::Engine::create(must(jit::options_from_environment())));
  gpu.device = must(jit::open_cuda_device(0));
  if (gpu.device->target().name != "sm_90a") die("this GPU is " + gpu.device->target().name);
  gpu.stream = must(gpu.device->create_stream());
  constexpr size_t kWorkspace = size_t{32} << 20;
  gpu.workspace = gpu.allocate(kWorkspace);
  gpu.blas = tools::CublasLt::open(gpu.workspace.data(), kWorkspace);
  std::printf("%s, cuBLASLt %s, %s\n", gpu.device->name().c_str(), gpu.blas ? "found" : "not found",
              to_string(flags.dtype));
  if (flags.only != "attention") run_products(gpu, flags);
  if (flags.only.empty() || flags.only == "attention") run_attention(gpu, flags);
  return 0;
}

}  // namespace
}  // namespace laya::test

int main(int argc, char** argv) {
  return laya::test::run(argc, argv);
}
