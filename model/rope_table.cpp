#include "model/rope_table.h"

#include <cmath>

namespace laya::model {

HostRopeTable make_rope_table(double theta, int64_t head_dim, int64_t positions) {
  const int64_t pairs = head_dim / 2;
  std::vector<float> frequencies;
  for (int64_t j = 0; j < pairs; ++j) {
    const double exponent = 2.0 * static_cast<double>(j) / static_cast<double>(head_dim);
    frequencies.push_back(1.0F / static_cast<float>(std::pow(theta, exponent)));
  }
  HostRopeTable table;
  table.cos.reserve(static_cast<size_t>(positions * pairs));
  table.sin.reserve(static_cast<size_t>(positions * pairs));
  for (int64_t p = 0; p < positions; ++p) {
    for (const float frequency : frequencies) {
      const float angle = static_cast<float>(p) * frequency;
      table.cos.push_back(std::cos(angle));
      table.sin.push_back(std::sin(angle));
    }
  }
  return table;
}

std::vector<float> interleaved(const HostRopeTable& table) {
  std::vector<float> angles;
  angles.reserve(2 * table.cos.size());
  for (size_t i = 0; i < table.cos.size(); ++i) {
    angles.push_back(table.cos[i]);
    angles.push_back(table.sin[i]);
  }
  return angles;
}

}  // namespace laya::model
