// Whether to act: a small network on the first token's state and on how sure the options are.
// Features of p = softmax of a row's k' option logits, with k = max(2, k'):
//   p1, p1 - p2, H / log k, k / 255     p1, p2: the two largest; H = -sum p * log(max(p, 1e-9))
// out = w2 * gelu(w1 * [cls, features] + b1) + b2. A row without options has p = 0 throughout.
//
//! entry action_head
//! param D        int  8..65536 step 8       hidden size
//! param UNITS    int  1..16384              hidden units
//! param ACTIONS  int  1..4096
//! arg cls      ptr   [R, D] fp32
//! arg logits   ptr   [n] fp32
//! arg offsets  ptr   [R + 1] i32, ascending: row r has the logits offsets[r]..offsets[r + 1]
//! arg w1       ptr   [UNITS, D + 4] fp32
//! arg b1       ptr   [UNITS] fp32
//! arg w2       ptr   [ACTIONS, UNITS] fp32
//! arg b2       ptr   [ACTIONS] fp32
//! arg out      ptr   [R, ACTIONS] fp32
//! arg R        i32   may be 0
//
// Launch: any number of blocks, each with an equal share of the rows.
#include "vector_math.h"

namespace {

/// Up to kWidth logits from number `first` on; lanes past the end hold -inf, which has p = 0.
inline Vec logits_from(const fp32* logits, int first, int count) {
  Vec v = -__builtin_inff();
  for (int i = 0; i < kWidth && first + i < count; ++i) v[i] = logits[first + i];
  return v;
}

struct TopTwo {
  fp32 first, second;
};

inline TopTwo top_two_of(const fp32* logits, int count) {
  TopTwo top = {-__builtin_inff(), -__builtin_inff()};
  for (int i = 0; i < count; ++i) {
    const fp32 value = logits[i];
    if (value > top.first) {
      top = {value, top.first};
    } else if (value > top.second) {
      top.second = value;
    }
  }
  return top;
}

void write_features(const fp32* logits, int count, fp32* features) {
  const fp32 k = static_cast<fp32>(count < 2 ? 2 : count);
  features[0] = features[1] = features[2] = 0;
  features[3] = k / 255.0f;
  if (count == 0) return;
  const TopTwo top = top_two_of(logits, count);
  Vec totals = 0;
  for (int i = 0; i < count; i += kWidth) {
    totals += exp_of_nonpositive(logits_from(logits, i, count) - top.first);
  }
  const fp32 total = sum(totals);
  Vec entropies = 0;
  for (int i = 0; i < count; i += kWidth) {
    const Vec p = exp_of_nonpositive(logits_from(logits, i, count) - top.first) / total;
    entropies = fma(-p, log(max(p, 1e-9f)), entropies);
  }
  const Vec second = exp_of_nonpositive(top.second - top.first);
  features[0] = 1.0f / total;
  features[1] = (1.0f - second[0]) / total;
  features[2] = sum(entropies) / log(k)[0];
}

}  // namespace

extern "C" void action_head(const fp32* cls, const fp32* logits, const int* offsets, const fp32* w1,
                            const fp32* b1, const fp32* w2, const fp32* b2, fp32* out, int R,
                            Block block) {
  constexpr int kInputs = D + 4;
  const Range range = share_of(R, block.x, block.nx);
  for (long long row = range.begin; row < range.end; ++row) {
    fp32 inputs[kInputs], units[UNITS];
    __builtin_memcpy(inputs, cls + row * D, D * sizeof(fp32));
    write_features(logits + offsets[row], offsets[row + 1] - offsets[row], inputs + D);
    for (long long unit = 0; unit < UNITS; ++unit) {
      units[unit] = dot<kInputs>(w1 + unit * kInputs, inputs) + b1[unit];
    }
    for_vectors<UNITS>([&](int i, auto n) { store(units + i, gelu(load(units + i, n)), n); });
    for (long long action = 0; action < ACTIONS; ++action) {
      out[row * ACTIONS + action] = dot<UNITS>(w2 + action * UNITS, units) + b2[action];
    }
  }
}
