#include "jit/cuda/driver.h"

#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <utility>

#include "jit/cuda/driver_functions.h"

namespace laya::jit::cuda {

struct DriverTable {
#define LAYA_FIELD(name, symbol) decltype(&::name) name = nullptr;
  LAYA_CUDA_REQUIRED(LAYA_FIELD)
  LAYA_CUDA_OPTIONAL(LAYA_FIELD)
#undef LAYA_FIELD
  int version = 0;  // 13000

  bool has_libraries() const {
    return cuLibraryLoadData && cuLibraryUnload && cuLibraryGetKernel && cuKernelGetFunction &&
           cuKernelSetAttribute;
  }
};

namespace {

constexpr const char* kInstallDriver = "install the NVIDIA driver of this machine's GPU";

// Filled once, before anyone holds a handle; then constant.
DriverTable g_table;
// True in a child process: the driver's state was not copied by fork and its calls may hang.
std::atomic<bool> g_is_forked{false};

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"
std::string code_text(const DriverTable& table, CUresult code) {
  const char* name = nullptr;
  const char* description = nullptr;
  table.cuGetErrorName(code, &name);
  table.cuGetErrorString(code, &description);
  return std::string(name ? name : "unknown error") + " (" + std::to_string(code) +
         "): " + (description ? description : "no description");
}

tl::unexpected<Error> failed(const DriverTable& table, CUresult code, const char* call) {
  return fail(ErrorKind::kDeviceError, std::string(call) + ": " + code_text(table, code));
}

#define LAYA_CU(call, ...)                                                  \
  if (const CUresult code = table_.call(__VA_ARGS__); code != CUDA_SUCCESS) \
  return failed(table_, code, #call)

/// Makes a context current for the life of the object: 0.01 us where it is already, else 0.05 us.
class CurrentContext {
 public:
  CurrentContext(const DriverTable& table, CUcontext context) : table_(table) {
    table_.cuCtxGetCurrent(&previous_);
    is_changed_ = previous_ != context;
    if (is_changed_) table_.cuCtxSetCurrent(context);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  ~CurrentContext() {
    if (is_changed_) table_.cuCtxSetCurrent(previous_);
  }

 private:
  const DriverTable& table_;
  CUcontext previous_ = nullptr;
  bool is_changed_ = false;
};

CUdeviceptr device_pointer(const void* data) {
  return reinterpret_cast<CUdeviceptr>(data);
}

/// Owns a recorded graph until it has been made executable.
struct DestroyGraph {
  void operator()(CUgraph graph) const noexcept { g_table.cuGraphDestroy(graph); }
};
using RecordedGraph = std::unique_ptr<CUgraph_st, DestroyGraph>;

Result<void> load_table(DriverTable& table) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    return fail(ErrorKind::kUnavailable,
                std::string("no NVIDIA driver: ") + (why ? why : "") + "; " + kInstallDriver);
  }
#define LAYA_LOAD(name, symbol) \
  table.name = reinterpret_cast<decltype(table.name)>(dlsym(library, symbol));
#define LAYA_LOAD_REQUIRED(name, symbol)                                                    \
  LAYA_LOAD(name, symbol)                                                                   \
  if (table.name == nullptr) {                                                              \
    return fail(ErrorKind::kUnavailable, "the NVIDIA driver is too old: it has no " symbol  \
                                         "; install one that supports CUDA 12.0 or later"); \
  }
  LAYA_CUDA_REQUIRED(LAYA_LOAD_REQUIRED)
  LAYA_CUDA_OPTIONAL(LAYA_LOAD)
#undef LAYA_LOAD_REQUIRED
#undef LAYA_LOAD
  return {};
}

Result<void> initialise(DriverTable& table) {
  LAYA_TRY(load_table(table));
  if (const CUresult code = table.cuInit(0); code != CUDA_SUCCESS) {
    return fail(ErrorKind::kUnavailable,
                "no usable GPU: cuInit: " + code_text(table, code) +
                    "; see whether nvidia-smi lists one and CUDA_VISIBLE_DEVICES hides it");
  }
  table.cuDriverGetVersion(&table.version);
  pthread_atfork(nullptr, nullptr, [] { g_is_forked = true; });
  return {};
}

}  // namespace

tl::unexpected<Error> while_doing(const std::string& what, Error error) {
  error.message = what + ": " + error.message;
  return tl::make_unexpected(std::move(error));
}

void Destroy::operator()(CUevent_st* event) const noexcept {
  if (!g_is_forked) g_table.cuEventDestroy(event);
}

void Destroy::operator()(CUgraphExec_st* graph) const noexcept {
  if (!g_is_forked) g_table.cuGraphExecDestroy(graph);
}

void Destroy::operator()(CUlib_st* library) const noexcept {
  if (!g_is_forked) g_table.cuLibraryUnload(library);
}

void Destroy::operator()(CUstream_st* stream) const noexcept {
  if (!g_is_forked) g_table.cuStreamDestroy(stream);
}

Result<const Driver*> Driver::open() {
  LAYA_TRY(initialise(g_table));
  static const Driver driver(g_table);
  return &driver;
}

Result<const Driver*> Driver::get() {
  if (g_is_forked) {
    return fail(ErrorKind::kUnavailable,
                "CUDA was used before this process was forked and cannot be used in the child; "
                "fork first, or start a new process");
  }
  // Never destroyed: objects with static lifetime may still hold handles when the process ends.
  static const auto* driver = new Result<const Driver*>(open());
  return *driver;
}

std::string Driver::version() const {
  return version_text(table_.version);
}

Result<int> Driver::device_count() const {
  int count = 0;
  LAYA_CU(cuDeviceGetCount, &count);
  return count;
}

Result<DeviceInfo> Driver::describe(int ordinal) const {
  CUdevice device = 0;
  LAYA_CU(cuDeviceGet, &device, ordinal);
  char name[256] = {};
  LAYA_CU(cuDeviceGetName, name, sizeof name - 1, device);
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    table_.cuDeviceGetAttribute(&value, which, device);  // 0 where the driver does not know it
    return value;
  };
  DeviceInfo info;
  info.name = name;
  info.capability = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
                    attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  info.processors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  info.block_shared = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  return info;
}

Result<CUctx_st*> Driver::retain_context(int ordinal) const {
  CUdevice device = 0;
  CUcontext context = nullptr;
  LAYA_CU(cuDeviceGet, &device, ordinal);
  LAYA_CU(cuDevicePrimaryCtxRetain, &context, device);
  return context;
}

Result<void*> Driver::allocate(CUctx_st* context, size_t bytes) const {
  const CurrentContext current(table_, context);
  CUdeviceptr data = 0;
  LAYA_CU(cuMemAlloc, &data, bytes);
  return reinterpret_cast<void*>(data);
}

Result<void*> Driver::allocate_host(CUctx_st* context, size_t bytes) const {
  const CurrentContext current(table_, context);
  void* data = nullptr;
  LAYA_CU(cuMemHostAlloc, &data, bytes, CU_MEMHOSTALLOC_PORTABLE);
  return data;
}

void Driver::free(CUctx_st* context, void* data) const noexcept {
  if (g_is_forked) return;
  const CurrentContext current(table_, context);
  table_.cuMemFree(device_pointer(data));
}

void Driver::free_host(CUctx_st* context, void* data) const noexcept {
  if (g_is_forked) return;
  const CurrentContext current(table_, context);
  table_.cuMemFreeHost(data);
}

size_t Driver::free_bytes(CUctx_st* context) const noexcept {
  const CurrentContext current(table_, context);
  size_t unused = 0, total = 0;
  return table_.cuMemGetInfo(&unused, &total) == CUDA_SUCCESS ? unused : 0;
}

Result<StreamHandle> Driver::create_stream(CUctx_st* context) const {
  const CurrentContext current(table_, context);
  CUstream stream = nullptr;
  LAYA_CU(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  return StreamHandle(stream);
}

Result<void> Driver::synchronize(CUctx_st* context, CUstream_st* stream) const {
  const CurrentContext current(table_, context);
  LAYA_CU(cuStreamSynchronize, stream);
  return {};
}

Result<void> Driver::copy_to_device(CUctx_st* context, CUstream_st* stream, void* device_dst,
                                    const void* host_src, size_t bytes) const {
  const CurrentContext current(table_, context);
  LAYA_CU(cuMemcpyHtoDAsync, device_pointer(device_dst), host_src, bytes, stream);
  return {};
}

Result<void> Driver::copy_to_host(CUctx_st* context, CUstream_st* stream, void* host_dst,
                                  const void* device_src, size_t bytes) const {
  const CurrentContext current(table_, context);
  LAYA_CU(cuMemcpyDtoHAsync, host_dst, device_pointer(device_src), bytes, stream);
  return {};
}

Result<void> Driver::fill(CUctx_st* context, CUstream_st* stream, void* device_dst, uint8_t value,
                          size_t bytes) const {
  const CurrentContext current(table_, context);
  LAYA_CU(cuMemsetD8Async, device_pointer(device_dst), value, bytes, stream);
  return {};
}

Result<void> Driver::begin_capture(CUctx_st* context, CUstream_st* stream) const {
  const CurrentContext current(table_, context);
  // Calls of other threads neither end up in this recording nor break it.
  LAYA_CU(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  return {};
}

Result<GraphExec> Driver::end_capture(CUctx_st* context, CUstream_st* stream) const {
  const CurrentContext current(table_, context);
  CUgraph recorded = nullptr;
  LAYA_CU(cuStreamEndCapture, stream, &recorded);
  const RecordedGraph graph(recorded);
  CUgraphExec executable = nullptr;
  LAYA_CU(cuGraphInstantiate, &executable, graph.get(), 0);
  GraphExec owner(executable);
  LAYA_CU(cuGraphUpload, executable, stream);  // else the first launch pays for it
  return owner;
}

Result<void> Driver::launch(CUctx_st* context, CUstream_st* stream, CUgraphExec_st* graph) const {
  const CurrentContext current(table_, context);
  LAYA_CU(cuGraphLaunch, graph, stream);
  return {};
}

Result<Event> Driver::create_event(CUctx_st* context) const {
  const CurrentContext current(table_, context);
  CUevent event = nullptr;
  LAYA_CU(cuEventCreate, &event, CU_EVENT_DEFAULT);
  return Event(event);
}

Result<void> Driver::record(CUctx_st* context, CUstream_st* stream, CUevent_st* event) const {
  const CurrentContext current(table_, context);
  LAYA_CU(cuEventRecord, event, stream);
  return {};
}

Result<void> Driver::wait(CUctx_st* context, CUevent_st* event) const {
  const CurrentContext current(table_, context);
  LAYA_CU(cuEventSynchronize, event);
  return {};
}

Result<double> Driver::elapsed_ms(CUctx_st* context, CUevent_st* start, CUevent_st* end) const {
  const CurrentContext current(table_, context);
  float milliseconds = 0;
  LAYA_CU(cuEventElapsedTime, &milliseconds, start, end);
  return double{milliseconds};
}

Result<Library> Driver::load_library(const std::string& cubin) const {
  if (!table_.has_libraries()) {
    return fail(ErrorKind::kUnavailable, "the NVIDIA driver supports CUDA " + version() +
                                             "; loading kernels needs a driver for 12.0 or later");
  }
  CUlibrary library = nullptr;
  LAYA_CU(cuLibraryLoadData, &library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  return Library(library);
}

Result<CUkern_st*> Driver::find_kernel(CUlib_st* library, const std::string& entry) const {
  CUkernel kernel = nullptr;
  LAYA_CU(cuLibraryGetKernel, &kernel, library, entry.c_str());
  return kernel;
}

Result<void> Driver::load_into(CUctx_st* context, CUkern_st* kernel) const {
  const CurrentContext current(table_, context);
  CUfunction function = nullptr;
  LAYA_CU(cuKernelGetFunction, &function, kernel);
  return {};
}

Result<void> Driver::allow_shared(int ordinal, CUkern_st* kernel, int64_t bytes) const {
  CUdevice device = 0;
  LAYA_CU(cuDeviceGet, &device, ordinal);
  LAYA_CU(cuKernelSetAttribute, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
          static_cast<int>(bytes), kernel, device);
  return {};
}

Result<int> Driver::occupancy(CUctx_st* context, CUkern_st* kernel, int threads,
                              size_t dynamic_shared_bytes) const {
  const CurrentContext current(table_, context);
  int blocks = 0;
  LAYA_CU(cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks,
          reinterpret_cast<CUfunction>(kernel), threads, dynamic_shared_bytes);
  return blocks;
}

Result<void> Driver::encode_map(CUctx_st* context, TensorMapBytes& map, const TensorMapShape& shape,
                                void* data, int64_t rows) const {
  const CurrentContext current(table_, context);
  static_assert(sizeof(TensorMapBytes) == sizeof(CUtensorMap));
  const bool is_wide = shape.dtype == "fp32";
  const CUtensorMapDataType type = is_wide                 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                                   : shape.dtype == "bf16" ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                           : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  const auto columns = static_cast<cuuint64_t>(shape.columns);
  const auto row_count = static_cast<cuuint64_t>(rows);
  const cuuint64_t row_bytes = columns * (is_wide ? 4 : 2);
  const auto box_columns = static_cast<cuuint32_t>(shape.box_columns);
  const auto box_rows = static_cast<cuuint32_t>(shape.box_rows);
  const bool is_grouped = shape.by_thread > 0;
  const cuuint64_t group = is_grouped ? static_cast<cuuint64_t>(shape.by_thread) : 8;
  const auto blocks = static_cast<cuuint32_t>(group / 8);
  // The driver counts dimensions from the innermost one, and wants strides of all others. By thread
  // they are i, t, b and the group of G rows G/4 t + 2b + i: the stride of b is less than that of
  // t, which the driver takes though its manual shows only tensors whose strides ascend.
  const cuuint64_t plain[] = {columns, row_count};
  const cuuint64_t grouped[] = {columns, 2, 4, blocks, row_count / group};
  const cuuint64_t strides[] = {row_bytes, group / 4 * row_bytes, 2 * row_bytes, group * row_bytes};
  const cuuint32_t box[] = {box_columns, box_rows};
  const cuuint32_t grouped_box[] = {box_columns, 2, 4, blocks, box_rows / (8 * blocks)};
  const cuuint32_t steps[] = {1, 1, 1, 1, 1};
  LAYA_CU(cuTensorMapEncodeTiled, reinterpret_cast<CUtensorMap*>(&map), type, is_grouped ? 5 : 2,
          data, is_grouped ? grouped : plain, strides, is_grouped ? grouped_box : box, steps,
          CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
          CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return {};
}

bool Driver::has_dependent_launch() const {
  constexpr int kFirstVersion = 12030;
  return table_.cuLaunchKernelEx != nullptr && table_.version >= kFirstVersion;
}

Result<void> Driver::launch_dependent(CUctx_st* context, CUstream_st* stream, CUkern_st* kernel,
                                      const LaunchShape& shape, void* const* values) const {
  const CurrentContext current(table_, context);
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  config.gridDimX = shape.grid.x, config.gridDimY = shape.grid.y, config.gridDimZ = shape.grid.z;
  config.blockDimX = shape.block.x, config.blockDimY = shape.block.y;
  config.blockDimZ = shape.block.z;
  config.sharedMemBytes = shape.dynamic_shared_bytes;
  config.hStream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  LAYA_CU(cuLaunchKernelEx, &config, reinterpret_cast<CUfunction>(kernel),
          const_cast<void**>(values), nullptr);
  return {};
}

Result<void> Driver::launch(CUctx_st* context, CUstream_st* stream, CUkern_st* kernel,
                            const LaunchShape& shape, void* const* values) const {
  const CurrentContext current(table_, context);
  // The driver takes a CUkernel for a CUfunction, and reads the values without changing them.
  LAYA_CU(cuLaunchKernel, reinterpret_cast<CUfunction>(kernel), shape.grid.x, shape.grid.y,
          shape.grid.z, shape.block.x, shape.block.y, shape.block.z, shape.dynamic_shared_bytes,
          stream, const_cast<void**>(values), nullptr);
  return {};
}

}  // namespace laya::jit::cuda
