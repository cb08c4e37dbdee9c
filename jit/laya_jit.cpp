// The C interface: converts arguments and errors, and lets no exception out.
#include "jit/laya_jit.h"

#include <charconv>
#include <cstring>
#include <exception>
#include <string>

#include "jit/engine.h"

using laya::Error;
using laya::ErrorKind;
using laya::Result;
namespace jit = laya::jit;

struct laya_engine {
  std::shared_ptr<jit::Engine> value;
};
struct laya_device {
  std::shared_ptr<jit::Device> value;
};
struct laya_stream {
  std::unique_ptr<jit::Stream> value;
};
struct laya_kernel {
  std::shared_ptr<const jit::Kernel> value;
};
struct laya_buffer {
  jit::Buffer value;
};

namespace {

laya_status status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kBadSpec: return LAYA_BAD_SPEC;
    case ErrorKind::kBadInput: return LAYA_BAD_INPUT;
    case ErrorKind::kCompileFailed: return LAYA_COMPILE_FAILED;
    case ErrorKind::kNotCached: return LAYA_NOT_CACHED;
    case ErrorKind::kUnavailable: return LAYA_UNAVAILABLE;
    case ErrorKind::kDeviceError: return LAYA_DEVICE_ERROR;
    case ErrorKind::kStoreError: return LAYA_STORE_ERROR;
    case ErrorKind::kInternal: return LAYA_INTERNAL;
  }
  return LAYA_INTERNAL;
}

laya_status report(const Error& failure, char** error) {
  if (error != nullptr) *error = strdup(failure.to_string().c_str());
  return status_of(failure.kind);
}

/// Runs `work` (a Result<T>) and stores its value in `out`; any exception becomes an error.
template <class T, class Work>
laya_status guarded(T& out, char** error, const Work& work) {
  try {
    auto result = work();
    if (!result) return report(result.error(), error);
    out = std::move(*result);
    return LAYA_OK;
  } catch (const std::exception& exception) {
    return report(Error{ErrorKind::kInternal, exception.what(), {}}, error);
  }
}

struct Nothing {};

/// The same for work that yields no value.
template <class Work>
laya_status guarded(char** error, const Work& work) {
  Nothing nothing;
  return guarded(nothing, error, [&]() -> Result<Nothing> {
    LAYA_TRY(work());
    return Nothing{};
  });
}

tl::unexpected<Error> null_argument(const char* name) {
  return laya::fail(ErrorKind::kBadInput, std::string(name) + " is NULL");
}

jit::Backend to_backend(laya_backend backend) {
  return backend == LAYA_CUDA ? jit::Backend::kCuda : jit::Backend::kCpu;
}

Result<std::shared_ptr<jit::Device>> open_device(std::string_view name) {
  if (name == "cpu") return jit::open_cpu_device(0);
  if (name == "cuda") return jit::open_cuda_device(0);
  int ordinal = -1;
  if (name.starts_with("cuda:")) {
    const char* end = name.data() + name.size();
    const auto parsed = std::from_chars(name.data() + 5, end, ordinal);
    if (parsed.ec != std::errc() || parsed.ptr != end) ordinal = -1;
  }
  if (ordinal >= 0) return jit::open_cuda_device(ordinal);
  return laya::fail(ErrorKind::kBadInput,
                    "device '" + std::string(name) + "' is none of cpu, cuda, cuda:N");
}

Result<std::shared_ptr<jit::Engine>> create_engine(const char* cache_dir, laya_log_fn log,
                                                   void* user) {
  LAYA_ASSIGN(jit::Options options, jit::options_from_environment());
  if (cache_dir != nullptr) options.cache_dir = cache_dir;
  if (log != nullptr) {
    options.log = [log, user](laya::LogLevel level, std::string_view line) {
      log(user, static_cast<laya_log_level>(level), std::string(line).c_str());
    };
  }
  return jit::Engine::create(std::move(options));
}

Result<jit::KernelSpec> make_spec(const char* template_name, const char* target,
                                  const laya_param* params, size_t count) {
  if (template_name == nullptr) return null_argument("template_name");
  if (target == nullptr) return null_argument("target");
  LAYA_ASSIGN(jit::Target parsed, jit::parse_target(target));
  jit::KernelSpec spec(template_name, std::move(parsed));
  for (size_t i = 0; i < count; ++i) {
    if (params[i].name == nullptr) return null_argument("the name of a parameter");
    if (params[i].word != nullptr) {
      spec.set(params[i].name, std::string_view(params[i].word));
    } else {
      spec.set(params[i].name, params[i].value);
    }
  }
  return spec;
}

}  // namespace

void laya_error_free(char* error) {
  free(error);
}

laya_engine* laya_engine_create(const char* cache_dir, laya_log_fn log, void* user, char** error) {
  std::shared_ptr<jit::Engine> engine;
  const auto status = guarded(engine, error, [&] { return create_engine(cache_dir, log, user); });
  return status == LAYA_OK ? new laya_engine{std::move(engine)} : nullptr;
}

void laya_engine_free(laya_engine* engine) {
  delete engine;
}

laya_stats laya_engine_stats(const laya_engine* engine) {
  const jit::EngineStats stats = engine->value->stats();
  return {stats.compiled, stats.disk_hits, stats.memory_hits, stats.failed, stats.compile_seconds};
}

laya_status laya_engine_add_template(laya_engine* engine, const char* name, laya_backend backend,
                                     const char* text, char** error) {
  return guarded(error, [&]() -> Result<void> {
    if (name == nullptr || text == nullptr) return null_argument("name or text");
    return engine->value->add_template(name, to_backend(backend), text);
  });
}

laya_status laya_engine_add_header(laya_engine* engine, const char* name, laya_backend backend,
                                   const char* text, char** error) {
  return guarded(error, [&]() -> Result<void> {
    if (name == nullptr || text == nullptr) return null_argument("name or text");
    return engine->value->add_header(name, to_backend(backend), text);
  });
}

laya_kernel* laya_kernel_get(laya_engine* engine, const char* template_name, const char* target,
                             const laya_param* params, size_t param_count, laya_status* status,
                             char** error) {
  std::shared_ptr<const jit::Kernel> kernel;
  const laya_status code =
      guarded(kernel, error, [&]() -> Result<std::shared_ptr<const jit::Kernel>> {
        LAYA_ASSIGN(const jit::KernelSpec spec,
                    make_spec(template_name, target, params, param_count));
        return engine->value->kernel(spec);
      });
  if (status != nullptr) *status = code;
  return code == LAYA_OK ? new laya_kernel{std::move(kernel)} : nullptr;
}

void laya_kernel_free(laya_kernel* kernel) {
  delete kernel;
}

laya_status laya_kernel_launch(const laya_kernel* kernel, laya_stream* stream,
                               const laya_launch_shape* shape, const laya_arg* args,
                               size_t arg_count, char** error) {
  jit::ArgRef refs[jit::kMaxLaunchArgs];
  return guarded(error, [&]() -> Result<void> {
    if (arg_count > jit::kMaxLaunchArgs) {
      return laya::fail(ErrorKind::kBadInput, "more than 64 arguments");
    }
    for (size_t i = 0; i < arg_count; ++i) refs[i] = {args[i].value, args[i].bytes};
    const jit::LaunchShape launch{{shape->grid[0], shape->grid[1], shape->grid[2]},
                                  {shape->block[0], shape->block[1], shape->block[2]},
                                  shape->dynamic_shared_bytes};
    return kernel->value->launch_args(*stream->value, launch, {refs, arg_count});
  });
}

laya_device* laya_device_open(const char* name, laya_status* status, char** error) {
  std::shared_ptr<jit::Device> device;
  const laya_status code = guarded(device, error, [&]() -> Result<std::shared_ptr<jit::Device>> {
    if (name == nullptr) return null_argument("name");
    return open_device(name);
  });
  if (status != nullptr) *status = code;
  return code == LAYA_OK ? new laya_device{std::move(device)} : nullptr;
}

laya_device* laya_cpu_device_open(int threads, int are_pinned, laya_execute_fn execute, void* user,
                                  laya_status* status, char** error) {
  std::shared_ptr<jit::Device> device;
  const laya_status code = guarded(device, error, [&]() -> Result<std::shared_ptr<jit::Device>> {
    if (threads < 0) {
      return laya::fail(ErrorKind::kBadInput,
                        "threads is " + std::to_string(threads) + ", allowed: 0 and more");
    }
    jit::CpuThreads choice{.count = threads, .are_pinned = are_pinned != 0};
    if (execute != nullptr) {
      choice.executor = [execute, user](int count, void (*task)(void*, int), void* context) {
        execute(user, count, task, context);
      };
    }
    return jit::open_cpu_device(choice);
  });
  if (status != nullptr) *status = code;
  return code == LAYA_OK ? new laya_device{std::move(device)} : nullptr;
}

void laya_device_free(laya_device* device) {
  delete device;
}

const char* laya_device_target(const laya_device* device) {
  return device->value->target().name.c_str();
}

laya_buffer* laya_buffer_create(laya_device* device, size_t bytes, char** error) {
  jit::Buffer buffer;
  const auto status = guarded(buffer, error, [&] { return device->value->allocate(bytes); });
  return status == LAYA_OK ? new laya_buffer{std::move(buffer)} : nullptr;
}

void* laya_buffer_data(const laya_buffer* buffer) {
  return buffer->value.data();
}

void laya_buffer_free(laya_buffer* buffer) {
  delete buffer;
}

laya_stream* laya_stream_create(laya_device* device, char** error) {
  std::unique_ptr<jit::Stream> stream;
  const auto status = guarded(stream, error, [&] { return device->value->create_stream(); });
  return status == LAYA_OK ? new laya_stream{std::move(stream)} : nullptr;
}

laya_status laya_stream_synchronize(laya_stream* stream, char** error) {
  return guarded(error, [&] { return stream->value->synchronize(); });
}

laya_status laya_copy_to_device(laya_stream* stream, void* device_dst, const void* host_src,
                                size_t bytes, char** error) {
  return guarded(error, [&] { return stream->value->copy_to_device(device_dst, host_src, bytes); });
}

laya_status laya_copy_to_host(laya_stream* stream, void* host_dst, const void* device_src,
                              size_t bytes, char** error) {
  return guarded(error, [&] { return stream->value->copy_to_host(host_dst, device_src, bytes); });
}

void laya_stream_free(laya_stream* stream) {
  delete stream;
}
