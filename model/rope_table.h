// Angles of the rotary position embedding.
#pragma once

#include <cstdint>
#include <vector>

namespace laya::model {

struct HostRopeTable {
  std::vector<float> cos, sin;  ///< [positions, head_dim / 2]
};

/// Angle of (position p, pair j) = p * theta^(-2j / head_dim). Frequencies and angles are rounded
/// to fp32 as the reference implementation does: at position 8000 an exact angle would differ from
/// its by 5e-4.
HostRopeTable make_rope_table(double theta, int64_t head_dim, int64_t positions);

/// Cosine and sine of each angle side by side: [positions, head_dim / 2, 2].
std::vector<float> interleaved(const HostRopeTable& table);

}  // namespace laya::model
