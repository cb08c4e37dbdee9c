#include "jit/artifact.h"

#include <nlohmann/json.hpp>

namespace laya::jit {
namespace {

/// Raised when the meaning of a field or of the generated code around a template changes.
constexpr int64_t kKeyVersion = 2;

}  // namespace

cache::Key artifact_key(const KernelSpec& spec, const ArtifactInputs& inputs) {
  cache::KeyBuilder key;
  key.field("laya-key", kKeyVersion);
  key.field("backend", to_string(spec.target().backend));
  key.field("target", spec.target().name);
  key.field("kernel", spec.to_string());
  for (const std::string& option : inputs.options) key.field("option", option);
  key.field("constants", inputs.source.constants);
  key.common_from_here();
  for (const Header& header : inputs.headers) {
    // Two fields, since a name may hold what a tag may not.
    key.field("header", header.name).field("header-text", header.text);
  }
  key.field("source", inputs.source.text);
  return std::move(key).finish();
}

cache::Record to_record(const KernelSpec& spec, const Artifact& artifact, std::string producer) {
  const nlohmann::json metadata = {
      {"kernel", spec.to_string()},
      {"template", spec.template_name()},
      {"target", spec.target().name},
      {"registers", artifact.attributes.registers},
      {"static_shared_bytes", artifact.attributes.static_shared_bytes},
      {"local_bytes", artifact.attributes.local_bytes},
      {"constant_bytes", artifact.attributes.constant_bytes},
      {"max_threads", artifact.attributes.max_threads},
      {"compile_seconds", artifact.compile_seconds},
  };
  return {std::move(producer), artifact.object, metadata.dump()};
}

Result<Artifact> from_record(cache::Record record) {
  const auto metadata = nlohmann::json::parse(record.metadata, nullptr, /*allow_exceptions=*/false);
  if (!metadata.is_object()) return fail(ErrorKind::kStoreError, "metadata is no JSON object");
  const auto number = [&]<class T>(const char* name, T& out) {
    const auto at = metadata.find(name);
    const bool found = at != metadata.end() && at->is_number();
    if (found) out = at->template get<T>();
    return found;
  };
  Artifact artifact;
  KernelAttributes& attributes = artifact.attributes;
  const bool complete = number("registers", attributes.registers) &&
                        number("static_shared_bytes", attributes.static_shared_bytes) &&
                        number("local_bytes", attributes.local_bytes) &&
                        number("constant_bytes", attributes.constant_bytes) &&
                        number("max_threads", attributes.max_threads) &&
                        number("compile_seconds", artifact.compile_seconds);
  if (!complete) return fail(ErrorKind::kStoreError, "metadata lacks an attribute");
  artifact.object = std::move(record.artifact);
  return artifact;
}

}  // namespace laya::jit
