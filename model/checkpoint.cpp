#include "model/checkpoint.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "model/layout.h"

namespace laya::model {
namespace {

constexpr size_t kNamed = 5;

std::vector<std::string> find_problems(const Config& config, const SafetensorsFile& file) {
  std::vector<std::string> problems;
  std::set<std::string> known;
  for (const TensorSpec& spec : tensor_layout(config)) {
    known.insert(spec.name);
    const Tensor* tensor = file.find(spec.name);
    if (tensor == nullptr) {
      problems.push_back(spec.name + " is missing");
    } else if (tensor->shape != spec.shape) {
      problems.push_back(spec.name + " has shape " + shape_to_string(tensor->shape) +
                         ", the configuration says " + shape_to_string(spec.shape));
    }
  }
  for (const Tensor& tensor : file.tensors()) {
    if (!known.contains(tensor.name)) problems.push_back(tensor.name + " is not part of the model");
  }
  return problems;
}

std::string describe(const std::vector<std::string>& problems) {
  std::string text;
  for (size_t i = 0; i < std::min(kNamed, problems.size()); ++i) {
    text += (i == 0 ? "" : "; ") + problems[i];
  }
  if (problems.size() > kNamed)
    text += "; and " + std::to_string(problems.size() - kNamed) + " more";
  return text;
}

}  // namespace

Result<Checkpoint> open_checkpoint(const std::filesystem::path& directory) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(directory, ignored)) {
    return fail(ErrorKind::kBadInput, directory.string() + " is not a directory");
  }
  Checkpoint checkpoint;
  LAYA_ASSIGN(checkpoint.config, read_config(directory));
  const std::filesystem::path file = directory / "model.safetensors";
  LAYA_ASSIGN(checkpoint.weights, SafetensorsFile::open(file));
  const auto problems = find_problems(checkpoint.config, checkpoint.weights);
  if (!problems.empty()) {
    return fail(ErrorKind::kBadInput, file.string() + ": " + describe(problems));
  }
  return checkpoint;
}

}  // namespace laya::model
