// What the kernels must compute, as plain loops in double precision.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/ops.h"

namespace laya::test::reference {

using Values = std::vector<double>;
using View = std::span<const double>;

double gelu(double x);
double activate(double x, model::Activation activation);

/// Columns `columns` of a * w^T + bias with a [rows, k], w [n, k]; an empty bias adds nothing.
Values product(View a, View w, View bias, int64_t k, std::span<const int64_t> columns);

/// gelu(x * w1^T + b1) * w2^T + b2 for rows of x [rows, w1.size() / b1.size()].
Values two_layers(View x, View w1, View b1, View w2, View b2);

/// LayerNorm of each row of x [rows, weight.size()]; an empty bias adds nothing.
Values layer_norm(View x, View weight, View bias, double eps);

/// Mean and sum of squared distances to it of each 32 values of x, in turn: [rows, D / 32, 2].
Values moments(View x);

/// The same as the kernels keep it, [D / 32, R8, 2] (templates/cuda/moments.cuh), and back.
std::vector<float> moment_array(View moments, int64_t rows);
std::vector<float> moments_by_row(std::span<const float> array, int64_t rows);

/// qkv [rows, 3, heads, head_dim] with q and k turned by cos, sin [P, head_dim / 2].
Values rope(Values qkv, View cos, View sin, std::span<const int> positions, int64_t heads,
            int64_t head_dim);

/// Result [rows, heads, head_dim] for sequences of the given lengths, one after the other.
/// window 0: all keys.
Values attention(View qkv, std::span<const int> lengths, int64_t heads, int64_t head_dim,
                 int64_t window);

/// The four confidence features of one row's option logits.
Values confidence_features(View logits);

}  // namespace laya::test::reference
