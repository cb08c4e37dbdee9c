// Which code runs on which GPU.
#pragma once

#include "jit/target.h"

namespace laya::jit::cuda {

/// What to compile for on a GPU of compute capability `capability` (x 10): "sm_90a" for 90. With
/// the suffix that gives all of the instructions, where one exists.
Target target_of(int capability);

/// True if code for `target` runs on a GPU of compute capability `capability` (x 10).
bool runs_on(const Target& target, int capability);

}  // namespace laya::jit::cuda
