#include "tests/templates/reference.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace laya::test::reference {
namespace {

double dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

Values softmax(View logits) {
  Values p(logits.begin(), logits.end());
  if (p.empty()) return p;
  const double top = *std::max_element(p.begin(), p.end());
  double sum = 0;
  for (double& value : p) sum += value = std::exp(value - top);
  for (double& value : p) value /= sum;
  return p;
}

/// Of an array of moments as the kernels keep it, and of the same values by row.
struct MomentLayout {
  explicit MomentLayout(int64_t count)
      : rows(static_cast<size_t>(count)), pitch((rows + 7) / 8 * 8) {}

  /// Where element i of [rows, groups, 2] is in the array.
  size_t place(size_t i, size_t groups) const {
    const size_t row = i / (2 * groups), group = i / 2 % groups;
    return (group * pitch + row) * 2 + i % 2;
  }

  size_t rows, pitch;
};

/// Where the parts of one sequence and head are, in rows `stride` apart.
struct HeadView {
  const double* q;
  const double* k;
  const double* v;
  int64_t stride, head_dim;
};

void attend(const HeadView& head, int64_t query, int64_t first, int64_t last, double* out) {
  Values scores;
  for (int64_t key = first; key <= last; ++key) {
    scores.push_back(dot(head.q + query * head.stride, head.k + key * head.stride, head.head_dim) /
                     std::sqrt(static_cast<double>(head.head_dim)));
  }
  const Values p = softmax(scores);
  std::fill_n(out, head.head_dim, 0.0);
  for (int64_t key = first; key <= last; ++key) {
    const double* v = head.v + key * head.stride;
    for (int64_t d = 0; d < head.head_dim; ++d) out[d] += p[key - first] * v[d];
  }
}

}  // namespace

double gelu(double x) {
  return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
}

double activate(double x, model::Activation activation) {
  switch (activation) {
    case model::Activation::kNone: return x;
    case model::Activation::kRelu: return std::max(x, 0.0);
    case model::Activation::kGelu: return gelu(x);
  }
  return x;
}

Values product(View a, View w, View bias, int64_t k, std::span<const int64_t> columns) {
  Values result;
  for (int64_t row = 0; row * k < std::ssize(a); ++row) {
    for (const int64_t column : columns) {
      const double sum = dot(&a[row * k], &w[column * k], k);
      result.push_back(bias.empty() ? sum : sum + bias[column]);
    }
  }
  return result;
}

Values two_layers(View x, View w1, View b1, View w2, View b2) {
  const auto layer = [](View input, View w, View bias) {
    std::vector<int64_t> columns(bias.size());
    std::iota(columns.begin(), columns.end(), 0);
    return product(input, w, bias, std::ssize(w) / std::ssize(bias), columns);
  };
  Values hidden = layer(x, w1, b1);
  for (double& unit : hidden) unit = gelu(unit);
  return layer(hidden, w2, b2);
}

Values layer_norm(View x, View weight, View bias, double eps) {
  const int64_t n = std::ssize(weight);
  Values result(x.size());
  for (int64_t begin = 0; begin < std::ssize(x); begin += n) {
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < n; ++i) mean += x[begin + i] / static_cast<double>(n);
    for (int64_t i = 0; i < n; ++i) {
      variance += (x[begin + i] - mean) * (x[begin + i] - mean) / static_cast<double>(n);
    }
    for (int64_t i = 0; i < n; ++i) {
      const double value = (x[begin + i] - mean) / std::sqrt(variance + eps) * weight[i];
      result[begin + i] = bias.empty() ? value : value + bias[i];
    }
  }
  return result;
}

Values moments(View x) {
  constexpr size_t kGroup = 32;
  Values result;
  for (size_t at = 0; at < x.size(); at += kGroup) {
    const View values = x.subspan(at, kGroup);
    double mean = 0, squares = 0;
    for (const double value : values) mean += value / kGroup;
    for (const double value : values) squares += (value - mean) * (value - mean);
    result.insert(result.end(), {mean, squares});
  }
  return result;
}

std::vector<float> moment_array(View moments, int64_t rows) {
  const MomentLayout layout(rows);
  const size_t groups = rows == 0 ? 0 : moments.size() / (2 * layout.rows);
  std::vector<float> array(groups * layout.pitch * 2);
  for (size_t i = 0; i < moments.size(); ++i) {
    array[layout.place(i, groups)] = static_cast<float>(moments[i]);
  }
  return array;
}

std::vector<float> moments_by_row(std::span<const float> array, int64_t rows) {
  const MomentLayout layout(rows);
  const size_t groups = rows == 0 ? 0 : array.size() / (2 * layout.pitch);
  std::vector<float> moments(groups * layout.rows * 2);
  for (size_t i = 0; i < moments.size(); ++i) moments[i] = array[layout.place(i, groups)];
  return moments;
}

Values rope(Values qkv, View cos, View sin, std::span<const int> positions, int64_t heads,
            int64_t head_dim) {
  const int64_t half = head_dim / 2;
  for (int64_t row = 0; row < std::ssize(positions); ++row) {
    for (int64_t head = 0; head < 2 * heads; ++head) {
      double* v = &qkv[(row * 3 * heads + head) * head_dim];
      for (int64_t i = 0; i < half; ++i) {
        const double c = cos[positions[row] * half + i], s = sin[positions[row] * half + i];
        const double first = v[i], second = v[half + i];
        v[i] = first * c - second * s;
        v[half + i] = second * c + first * s;
      }
    }
  }
  return qkv;
}

Values attention(View qkv, std::span<const int> lengths, int64_t heads, int64_t head_dim,
                 int64_t window) {
  const int64_t width = heads * head_dim;
  Values result(qkv.size() / 3);
  int64_t begin = 0;
  for (const int64_t length : lengths) {
    for (int64_t head = 0; head < heads; ++head) {
      const double* q = qkv.data() + begin * 3 * width + head * head_dim;
      const HeadView view{q, q + width, q + 2 * width, 3 * width, head_dim};
      for (int64_t i = 0; i < length; ++i) {
        const int64_t first = window > 0 ? std::max<int64_t>(i - window, 0) : 0;
        const int64_t last = window > 0 ? std::min(i + window, length - 1) : length - 1;
        attend(view, i, first, last, &result[(begin + i) * width + head * head_dim]);
      }
    }
    begin += length;
  }
  return result;
}

Values confidence_features(View logits) {
  Values p = softmax(logits);
  const double k = std::max<double>(2, static_cast<double>(p.size()));
  double entropy = 0;
  for (const double value : p) entropy -= value * std::log(std::max(value, 1e-9));
  p.resize(std::max<size_t>(p.size(), 2), 0.0);
  std::sort(p.begin(), p.end(), std::greater<>());
  return {p[0], p[0] - p[1], entropy / std::log(k), k / 255};
}

}  // namespace laya::test::reference
