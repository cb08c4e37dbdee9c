#include "tools/onednn.h"

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <vector>

namespace laya::tools {
namespace {

// Of the C interface. Handles of the library are plain addresses here.
using Dims = std::array<int64_t, 12>;
struct Argument {
  int index;
  void* memory;
};
struct Version {
  int major, minor, patch;
  const char* hash;
  unsigned cpu_runtime, gpu_runtime;
};
constexpr unsigned kOpenMpRuntime = 2;
constexpr int kCpuEngine = 1;
constexpr unsigned kInOrder = 1;
constexpr int kAnyLayout = 1;
constexpr int kBf16 = 2, kF32 = 3;
constexpr int kQueryWeights = 131;
constexpr int kMultiply = 0x1fff1;
constexpr int kSrc = 1, kSrc1 = 2, kDst = 17, kWeights = 33, kBias = 41;

#define LAYA_ONEDNN_FUNCTIONS(X)                                                    \
  X(const Version*, dnnl_version, ())                                               \
  X(int, dnnl_engine_create, (void**, int kind, size_t index))                      \
  X(int, dnnl_engine_destroy, (void*))                                              \
  X(int, dnnl_stream_create, (void**, void* engine, unsigned flags))                \
  X(int, dnnl_stream_destroy, (void*))                                              \
  X(int, dnnl_stream_wait, (void*))                                                 \
  X(size_t, dnnl_memory_desc_get_size, (const void*))                               \
  X(int, dnnl_memory_create, (void**, const void* desc, void* engine, void* data))  \
  X(int, dnnl_memory_destroy, (void*))                                              \
  X(const void*, dnnl_primitive_desc_query_md, (void*, int what, int index))        \
  X(int, dnnl_primitive_desc_destroy, (void*))                                      \
  X(int, dnnl_primitive_create, (void**, void* desc))                               \
  X(int, dnnl_primitive_destroy, (void*))                                           \
  X(int, dnnl_primitive_execute, (void*, void* stream, int count, const Argument*)) \
  X(int, dnnl_primitive_attr_create, (void**))                                      \
  X(int, dnnl_primitive_attr_destroy, (void*))                                      \
  X(int, dnnl_primitive_attr_set_post_ops, (void*, void* post_ops))                 \
  X(int, dnnl_post_ops_create, (void**))                                            \
  X(int, dnnl_post_ops_destroy, (void*))                                            \
  X(int, dnnl_post_ops_append_binary, (void*, int kind, const void* desc))          \
  X(int, dnnl_reorder_primitive_desc_create,                                        \
    (void**, const void* from, void* from_engine, const void* to, void* to_engine, void* attr))

#define LAYA_ONEDNN_2_FUNCTIONS(X)                                                              \
  X(int, dnnl_memory_desc_init_by_strides, (void*, int, const Dims&, int dtype, const Dims&))   \
  X(int, dnnl_memory_desc_init_by_tag, (void*, int, const Dims&, int dtype, int tag))           \
  X(int, dnnl_matmul_desc_init,                                                                 \
    (void*, const void* src, const void* weights, const void* bias, const void* dst))           \
  X(int, dnnl_primitive_desc_create,                                                            \
    (void**, const void* desc, void* attr, void* engine, void* hint))                           \
  X(int, dnnl_post_ops_append_eltwise, (void*, float scale, int kind, float alpha, float beta)) \
  X(int, dnnl_post_ops_append_sum, (void*, float scale))

#define LAYA_ONEDNN_3_FUNCTIONS(X)                                                                 \
  X(int, dnnl_memory_desc_create_with_strides, (void**, int, const Dims&, int dtype, const Dims&)) \
  X(int, dnnl_memory_desc_create_with_tag, (void**, int, const Dims&, int dtype, int tag))         \
  X(int, dnnl_memory_desc_destroy, (void*))                                                        \
  X(int, dnnl_matmul_primitive_desc_create,                                                        \
    (void**, void* engine, const void* src, const void* weights, const void* bias,                 \
     const void* dst, void* attr))                                                                 \
  X(int, dnnl_post_ops_append_eltwise, (void*, int kind, float alpha, float beta))                 \
  X(int, dnnl_post_ops_append_sum, (void*, float scale, int zero_point, int dtype))

#define LAYA_DECLARE(result, name, arguments) result(*name) arguments = nullptr;
#define LAYA_FIND(result, name, arguments) \
  is_complete = find(library, #name, table.name) && is_complete;

struct Functions2 {
  LAYA_ONEDNN_2_FUNCTIONS(LAYA_DECLARE)
};
struct Functions3 {
  LAYA_ONEDNN_3_FUNCTIONS(LAYA_DECLARE)
};
struct Functions {
  LAYA_ONEDNN_FUNCTIONS(LAYA_DECLARE)
  Functions2 v2;
  Functions3 v3;
  void (*omp_set_num_threads)(int) = nullptr;
};

template <class Function>
bool find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

bool find_all(void* library, Functions& table) {
  bool is_complete = true;
  LAYA_ONEDNN_FUNCTIONS(LAYA_FIND)
  return is_complete && find(library, "omp_set_num_threads", table.omp_set_num_threads);
}
bool find_all(void* library, Functions2& table) {
  bool is_complete = true;
  LAYA_ONEDNN_2_FUNCTIONS(LAYA_FIND)
  return is_complete;
}
bool find_all(void* library, Functions3& table) {
  bool is_complete = true;
  LAYA_ONEDNN_3_FUNCTIONS(LAYA_FIND)
  return is_complete;
}

Result<void> check(int status, const char* what) {
  if (status == 0) return {};
  return fail(ErrorKind::kDeviceError,
              std::string("oneDNN: ") + what + ": status " + std::to_string(status));
}

/// Owns a handle of the library, or memory for it.
using Handle = std::shared_ptr<void>;

/// A product as one or two primitives with their arguments, run in order.
class PreparedProduct final : public OnednnProduct {
 public:
  struct Step {
    Handle primitive;
    std::vector<Argument> arguments;
  };

  PreparedProduct(const Functions& api, Handle stream) : api_(api), stream_(std::move(stream)) {}

  void keep(Handle handle) { kept_.push_back(std::move(handle)); }
  void add(Step step) { steps_.push_back(std::move(step)); }

  Result<void> run() override {
    for (const Step& step : steps_) {
      LAYA_TRY(check(api_.dnnl_primitive_execute(step.primitive.get(), stream_.get(),
                                                 static_cast<int>(step.arguments.size()),
                                                 step.arguments.data()),
                     "running a primitive"));
    }
    return check(api_.dnnl_stream_wait(stream_.get()), "waiting");
  }

 private:
  const Functions& api_;
  Handle stream_;
  std::vector<Step> steps_;
  std::vector<Handle> kept_;  ///< what the arguments refer to
};

class OpenedOnednn final : public Onednn {
 public:
  explicit OpenedOnednn(const Functions& api) : api_(api) {}

  Result<void> initialize() {
    LAYA_ASSIGN(engine_, make(api_.dnnl_engine_destroy, "making an engine", [&](void** engine) {
                  return api_.dnnl_engine_create(engine, kCpuEngine, 0);
                }));
    LAYA_ASSIGN(stream_, make(api_.dnnl_stream_destroy, "making a stream", [&](void** stream) {
                  return api_.dnnl_stream_create(stream, engine_.get(), kInOrder);
                }));
    return {};
  }

  std::string name() const override {
    const Version& version = *api_.dnnl_version();
    return "oneDNN " + std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
           std::to_string(version.patch);
  }

  Result<std::unique_ptr<OnednnProduct>> prepare(const Product& product, const void* a,
                                                 const void* w, const float* bias,
                                                 void* out) override {
    auto prepared = std::make_unique<PreparedProduct>(api_, stream_);
    if (product.epilogue != Epilogue::kGeglu) {
      const bool has_gelu = product.epilogue == Epilogue::kBiasGelu;
      const bool is_added = product.epilogue == Epilogue::kResidual;
      LAYA_TRY(add(*prepared, product, a, w, has_gelu ? bias : nullptr, out,
                   has_gelu   ? gelu()
                   : is_added ? sum()
                              : Handle(),
                   nullptr));
      return prepared;
    }
    const auto bytes = static_cast<size_t>(model::size_of(product.dtype));
    const Handle activated = bytes_of(static_cast<size_t>(product.rows * product.n) * bytes);
    prepared->keep(activated);
    const auto* gates =
        static_cast<const std::byte*>(w) + static_cast<size_t>(product.n * product.k) * bytes;
    LAYA_TRY(add(*prepared, product, a, w, nullptr, activated.get(), gelu(), nullptr));
    LAYA_ASSIGN(const Handle factors, dense(product.rows, product.n, product.dtype));
    LAYA_TRY(
        add(*prepared, product, a, gates, nullptr, out, multiply_by(factors), activated.get()));
    return prepared;
  }

 private:
  bool is_v2() const { return api_.dnnl_version()->major == 2; }

  template <class Create>
  Result<Handle> make(int (*destroy)(void*), const char* what, Create create) const {
    void* made = nullptr;
    LAYA_TRY(check(create(&made), what));
    return Handle(made, destroy);
  }

  static Handle bytes_of(size_t bytes) {
    return Handle(::operator new(bytes, std::align_val_t{64}),
                  [](void* data) { ::operator delete(data, std::align_val_t{64}); });
  }

  /// A descriptor of memory. Version 2 keeps them in the caller's memory, 696 bytes.
  Result<Handle> strided(const Dims& sizes, const Dims& strides, model::DType dtype) const {
    const int type = dtype == model::DType::kF32 ? kF32 : kBf16;
    if (is_v2()) {
      Handle desc = bytes_of(1024);
      LAYA_TRY(check(api_.v2.dnnl_memory_desc_init_by_strides(desc.get(), 2, sizes, type, strides),
                     "describing an array"));
      return desc;
    }
    return make(api_.v3.dnnl_memory_desc_destroy, "describing an array", [&](void** desc) {
      return api_.v3.dnnl_memory_desc_create_with_strides(desc, 2, sizes, type, strides);
    });
  }
  Result<Handle> dense(int64_t rows, int64_t columns, model::DType dtype) const {
    return strided({rows, columns}, {columns, 1}, dtype);
  }
  Result<Handle> any_layout(int64_t rows, int64_t columns, model::DType dtype) const {
    const int type = dtype == model::DType::kF32 ? kF32 : kBf16;
    const Dims sizes{rows, columns};
    if (is_v2()) {
      Handle desc = bytes_of(1024);
      LAYA_TRY(check(api_.v2.dnnl_memory_desc_init_by_tag(desc.get(), 2, sizes, type, kAnyLayout),
                     "describing a weight"));
      return desc;
    }
    return make(api_.v3.dnnl_memory_desc_destroy, "describing a weight", [&](void** desc) {
      return api_.v3.dnnl_memory_desc_create_with_tag(desc, 2, sizes, type, kAnyLayout);
    });
  }

  /// Attributes with one post-op, or none where the library refuses it.
  template <class Append>
  Handle with_post_op(Append append) const {
    void* attr = nullptr;
    void* ops = nullptr;
    if (api_.dnnl_primitive_attr_create(&attr) != 0) return {};
    Handle owned(attr, api_.dnnl_primitive_attr_destroy);
    if (api_.dnnl_post_ops_create(&ops) != 0) return {};
    const Handle owned_ops(ops, api_.dnnl_post_ops_destroy);
    if (append(ops) != 0 || api_.dnnl_primitive_attr_set_post_ops(attr, ops) != 0) return {};
    return owned;
  }
  Handle gelu() const {
    return with_post_op([&](void* ops) {
      return is_v2() ? api_.v2.dnnl_post_ops_append_eltwise(ops, 1, 0x30, 0, 0)
                     : api_.v3.dnnl_post_ops_append_eltwise(ops, 0x31, 0, 0);
    });
  }
  Handle sum() const {
    return with_post_op([&](void* ops) {
      return is_v2() ? api_.v2.dnnl_post_ops_append_sum(ops, 1)
                     : api_.v3.dnnl_post_ops_append_sum(ops, 1, 0, /*dtype, that of out=*/0);
    });
  }
  Handle multiply_by(const Handle& factors) const {
    return with_post_op(
        [&](void* ops) { return api_.dnnl_post_ops_append_binary(ops, kMultiply, factors.get()); });
  }
  int post_op_factor() const { return (is_v2() ? 16384 : 32768) | kSrc1; }

  Result<Handle> product_desc(const Product& product, const Handle& src, const Handle& bias,
                              const Handle& dst, const Handle& attr) const {
    LAYA_ASSIGN(const Handle weights, any_layout(product.k, product.n, product.dtype));
    return make(api_.dnnl_primitive_desc_destroy, "choosing a product", [&](void** desc) {
      if (!is_v2()) {
        return api_.v3.dnnl_matmul_primitive_desc_create(
            desc, engine_.get(), src.get(), weights.get(), bias.get(), dst.get(), attr.get());
      }
      const Handle operation = bytes_of(4096);  // 2800 bytes are needed
      const int status = api_.v2.dnnl_matmul_desc_init(operation.get(), src.get(), weights.get(),
                                                       bias.get(), dst.get());
      if (status != 0) return status;
      return api_.v2.dnnl_primitive_desc_create(desc, operation.get(), attr.get(), engine_.get(),
                                                nullptr);
    });
  }

  Result<Handle> memory(const void* desc, const void* data) const {
    return make(api_.dnnl_memory_destroy, "wrapping an array", [&](void** memory) {
      return api_.dnnl_memory_create(memory, desc, engine_.get(), const_cast<void*>(data));
    });
  }

  Result<Handle> primitive(const Handle& desc) const {
    return make(api_.dnnl_primitive_destroy, "making a primitive", [&](void** primitive) {
      return api_.dnnl_primitive_create(primitive, desc.get());
    });
  }

  /// The weight in the layout that `desc` chose: its memory object and, kept by `owner`, its data.
  Result<Handle> packed_weight(PreparedProduct& owner, const Product& product, const Handle& desc,
                               const void* w) const {
    const void* wanted = api_.dnnl_primitive_desc_query_md(desc.get(), kQueryWeights, 0);
    const Handle data = bytes_of(api_.dnnl_memory_desc_get_size(wanted));
    owner.keep(data);
    LAYA_ASSIGN(Handle packed, memory(wanted, data.get()));
    LAYA_ASSIGN(const Handle plain, strided({product.k, product.n}, {1, product.k}, product.dtype));
    LAYA_ASSIGN(const Handle source, memory(plain.get(), w));
    LAYA_ASSIGN(const Handle reorder_desc,
                make(api_.dnnl_primitive_desc_destroy, "choosing how to pack", [&](void** made) {
                  return api_.dnnl_reorder_primitive_desc_create(made, plain.get(), engine_.get(),
                                                                 wanted, engine_.get(), nullptr);
                }));
    LAYA_ASSIGN(const Handle reorder, primitive(reorder_desc));
    const std::array arguments{Argument{kSrc, source.get()}, Argument{kDst, packed.get()}};
    LAYA_TRY(check(api_.dnnl_primitive_execute(reorder.get(), stream_.get(), 2, arguments.data()),
                   "packing a weight"));
    LAYA_TRY(check(api_.dnnl_stream_wait(stream_.get()), "packing a weight"));
    return packed;
  }

  /// Adds out = post-op(a * w^T + bias) for the first n rows of w. `factors`: what the post-op
  /// multiplies by, or null.
  Result<void> add(PreparedProduct& owner, const Product& product, const void* a, const void* w,
                   const float* bias, void* out, const Handle& attr, const void* factors) const {
    LAYA_ASSIGN(const Handle src, dense(product.rows, product.k, product.dtype));
    LAYA_ASSIGN(const Handle dst, dense(product.rows, product.n, product.out_dtype()));
    Handle bias_desc;
    if (bias != nullptr) {
      LAYA_ASSIGN(bias_desc, dense(1, product.n, model::DType::kF32));
    }
    LAYA_ASSIGN(const Handle desc, product_desc(product, src, bias_desc, dst, attr));
    PreparedProduct::Step step;
    LAYA_ASSIGN(step.primitive, primitive(desc));
    const auto pass = [&](int index, Handle memory) {
      step.arguments.push_back({index, memory.get()});
      owner.keep(std::move(memory));
    };
    LAYA_ASSIGN(Handle weight, packed_weight(owner, product, desc, w));
    pass(kWeights, std::move(weight));
    LAYA_ASSIGN(Handle source, memory(src.get(), a));
    pass(kSrc, std::move(source));
    LAYA_ASSIGN(Handle target, memory(dst.get(), out));
    pass(kDst, std::move(target));
    if (bias != nullptr) {
      LAYA_ASSIGN(Handle added, memory(bias_desc.get(), bias));
      pass(kBias, std::move(added));
    }
    if (factors != nullptr) {
      LAYA_ASSIGN(Handle multiplied, memory(dst.get(), factors));
      pass(post_op_factor(), std::move(multiplied));
    }
    owner.add(std::move(step));
    return {};
  }

  const Functions api_;
  Handle engine_, stream_;
};

/// OpenMP's threads look for more work for milliseconds, and whoever is measured next would share
/// the cores with them. As long as our own do, some 30 us, is enough to find the next product. Read
/// when the runtime is opened; a setting of the user's stays.
void shorten_waiting() {
  setenv("GOMP_SPINCOUNT", "3000", /*overwrite=*/0);
  setenv("KMP_BLOCKTIME", "0", /*overwrite=*/0);
}

void* open_library(const std::string& file) {
  shorten_waiting();
  if (!file.empty()) return dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* library = dlopen("libdnnl.so.3", RTLD_NOW | RTLD_LOCAL);
  return library != nullptr ? library : dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL);
}

}  // namespace

Result<std::unique_ptr<Onednn>> Onednn::open(const std::string& library, int threads) {
  void* const opened = open_library(library);  // never closed: its threads live on
  if (opened == nullptr) {
    return fail(ErrorKind::kUnavailable,
                std::string("no oneDNN: ") + dlerror() + "; install libdnnl-dev or name a library");
  }
  Functions api;
  const bool is_usable =
      find_all(opened, api) && api.dnnl_version()->cpu_runtime == kOpenMpRuntime &&
      (api.dnnl_version()->major == 2 ? find_all(opened, api.v2)
                                      : api.dnnl_version()->major == 3 && find_all(opened, api.v3));
  if (!is_usable) {
    return fail(ErrorKind::kUnavailable,
                "this oneDNN is not of version 2 or 3, or its threads are not OpenMP's");
  }
  api.omp_set_num_threads(threads);
  auto onednn = std::make_unique<OpenedOnednn>(api);
  LAYA_TRY(onednn->initialize());
  return onednn;
}

}  // namespace laya::tools
