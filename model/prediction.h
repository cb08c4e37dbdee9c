// What the model says about one row.
#pragma once

#include <vector>

namespace laya::model {

struct Prediction {
  std::vector<float> logits;         ///< one per option, in the order of Row::markers
  std::vector<float> probabilities;  ///< softmax of the logits, without any temperature
  std::vector<float> action_logits;  ///< Config::actions of them; the first is "act"
};

}  // namespace laya::model
