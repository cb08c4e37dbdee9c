// A kernel template: a source text in which the lines that begin with `//!` declare what it needs.
// The declaration is documentation for people and a contract that is checked:
//
//   //! entry  gemm                                 name of the function to launch
//   //! param  T    word  bf16 fp16 fp32            element type of a, w and out
//   //! param  N    int   8..1048576 step 8         columns of out
//   //! arg    a    ptr                             [rows, K] T
//   //! arg    rows i32                             rows of a and out; may be 0
//
// Two or more spaces end the list of words (which single spaces separate); what follows the last
// item of a line is a comment. Argument kinds: ptr, i32, u32, i64, u64, f32, f64, and, for CUDA,
//
//   //! arg    a    map T rows K BM BK              [rows, K] T, read in boxes of [BM, BK]
//
// which callers pass as a device pointer and the kernel receives as a tensor map (128 bytes, a
// `const __grid_constant__` value) of a row-major matrix: element type, rows, columns, box rows,
// box columns. Rows may name an i32 argument; all else is a number, an int parameter or a product
// such as 3*HEADS*64. Boxes lie in shared memory with the 128-byte swizzle; what is outside reads
// as 0.
//
//   //! arg    w    map T N K BN BK by_thread 32    rows of a box in another order
//
// Of each G rows, a number such as 32, row G/4 t + 2b + i comes to place 8b + 2t + i of the box,
// for t in 0..3, b in 0..G/8-1 and i in 0..1: the columns of a wgmma product that one thread holds
// are neighbours then. Rows are a number, no argument; they and box rows are multiples of G, which
// is one of 8; a box has five coordinates, (column, 0, 0, 0, row / G).
//
//   //! launch dependent                            programmatic dependent launch, CUDA only
//
// says that blocks may start while the kernels before it in the stream still run: the kernel calls
// wait_for_kernels_before() of dependent_launch.cuh before it reads what a kernel may have written,
// and before it writes. From compute capability 9.0 on; elsewhere launches are ordinary.
//
//   //! launch cluster C*S                          blocks of a cluster: parameters, numbers; CUDA
//
// defines a macro for the entry, `extern "C" __global__ void LAYA_CLUSTER entry(...)`: it is
// `__cluster_dims__` of so many blocks, or nothing where that is one: a kernel without the
// attribute starts faster.
//
// Expanding writes the parameters as constants in front of the text; in CUDA each is an enumerator,
// `enum : int { N = 768 };`, since a constexpr variable makes loading slower. So its type is not
// int there: write int(N) where a type is deduced from it. In templates for CPUs:
//   int N = 768      ->  constexpr int N = 768;           (long long where it does not fit)
//   word ACT = gelu  ->  constexpr int ACT_none = 0; ... constexpr int ACT = ACT_gelu;
//   word T = bf16    ->  using T = bf16;   where every allowed word is one of fp32, bf16, fp16;
//                        `#include "types.cuh"` (CPU: "types.h") comes first and defines those, and
//                        `constexpr int T_BYTES = 2;` follows.
// CUDA entries are `extern "C" __global__ void entry(args...)`. A CPU entry is
// `extern "C" void entry(args..., Block block)`, called once for each block of the grid; its text
// always begins with `#include "types.h"`, which defines Block, and expanding appends the function
// `laya_launch(void* const* args, const Block* block)` that unpacks the arguments for it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cache/result.h"
#include "jit/kernel_spec.h"

namespace laya::jit {

enum class ArgKind : uint8_t { kPointer, kI32, kU32, kI64, kU64, kF32, kF64, kTensorMap };

/// Size in bytes of an argument as a caller passes it: 8 for a pointer or a tensor map.
int size_of(ArgKind kind);
/// As written after `//! arg name`.
const char* to_string(ArgKind kind);

/// The matrix behind a kTensorMap argument.
struct TensorMapShape {
  std::string dtype;    ///< "fp32", "bf16" or "fp16"
  int rows_arg = -1;    ///< index of the i32 argument that holds the number of rows, or
  int64_t rows = 0;     ///< the number itself, where rows_arg is -1
  int64_t columns = 0;  ///< elements in a row; rows follow each other without a gap
  int64_t box_rows = 0, box_columns = 0;
  int64_t by_thread = 0;  ///< rows that are reordered among each other; 0: none
  bool operator==(const TensorMapShape&) const = default;
};

struct ArgDecl {
  std::string name;
  ArgKind kind = ArgKind::kPointer;
  TensorMapShape map = {};  ///< of kTensorMap only
  bool operator==(const ArgDecl&) const = default;
};
using Signature = std::vector<ArgDecl>;

struct ParamDecl {
  std::string name;
  bool is_int = false;
  int64_t min = 0, max = 0, step = 1;  ///< of an int: min..max, a multiple of step
  std::vector<std::string> words;      ///< of a word
  bool is_dtype() const;               ///< a word that only admits fp32, bf16, fp16
};

/// An argument as declared; the fields of a map are resolved once the parameters are known.
struct ArgTemplate {
  std::string name;
  ArgKind kind = ArgKind::kPointer;
  /// Of a map: dtype, rows, columns, box rows, box columns and, by_thread, how many rows.
  std::vector<std::string> map_fields;
  bool operator==(const ArgTemplate&) const = default;
};

struct Template {
  std::string name;  ///< file name without folder and extension
  Backend backend;
  std::string entry;
  std::vector<ParamDecl> params;
  std::vector<ArgTemplate> args;
  bool is_dependent = false;  ///< programmatic dependent launch
  std::string cluster;        ///< blocks of a cluster, a product of parameters; may be empty
  std::string text;
};

/// Reads the declaration. kBadSpec names the template, the line and what is wrong with it.
Result<Template> parse_template(std::string name, Backend backend, std::string text);

/// The arguments of the kernel that `spec` asks for. kBadSpec: a field of a map makes no sense.
Result<Signature> resolve_signature(const Template& source, const KernelSpec& spec);

/// A source to compile: `constants`, then `text`.
struct Source {
  std::string constants;  ///< the parameters' values, and LAYA_CLUSTER
  std::string text;       ///< `#line 1 "name.cu"` and the template: the same for all its specs

  std::string whole() const { return constants + text; }
};

/// The source to compile for `spec`.
/// kBadSpec names an unknown, missing or illegal parameter together with what is allowed.
Result<Source> expand(const Template& source, const KernelSpec& spec);

}  // namespace laya::jit
