#include "model/op.h"

#include <algorithm>

namespace laya::model {

jit::LaunchShape LaunchRule::shape(int64_t rows) const {
  const int64_t groups = (rows + rows_per_block - 1) / rows_per_block;
  jit::LaunchShape shape;
  shape.grid.x = static_cast<uint32_t>(std::min(groups * blocks_per_group, max_blocks));
  shape.block.x = threads;
  shape.dynamic_shared_bytes = dynamic_shared_bytes;
  return shape;
}

const Variant& Op::choose(int64_t rows) const {
  for (const Variant& variant : variants) {
    if (rows <= variant.max_rows) return variant;
  }
  return variants.back();
}

}  // namespace laya::model
