#include "jit/explain.h"

#include <algorithm>
#include <map>
#include <optional>

namespace laya::jit {
namespace {

/// Fields by a name that is unique within the key: options are numbered, header texts are named.
std::map<std::string, std::string> named_fields(const std::vector<cache::KeyField>& fields) {
  std::map<std::string, std::string> named;
  int options = 0;
  std::string header;
  for (const cache::KeyField& field : fields) {
    if (field.tag == "option") {
      named["option " + std::to_string(++options)] = field.value;
    } else if (field.tag == "header") {
      header = field.value;
    } else if (field.tag == "header-text") {
      named["header " + header] = field.value;
    } else {
      named[field.tag] = field.value;
    }
  }
  return named;
}

std::string quoted(const std::string* value) {
  if (value == nullptr) return "nothing";
  constexpr size_t kLongest = 120;
  return value->size() <= kLongest && value->find('\n') == std::string::npos
             ? "'" + *value + "'"
             : "a text of " + std::to_string(value->size()) + " bytes";
}

/// "line 12: '...' is stored, '...' is wanted" of two long texts.
std::string first_difference(const std::string& stored, const std::string& wanted) {
  const auto [at, unused] =
      std::mismatch(stored.begin(), stored.end(), wanted.begin(), wanted.end());
  const auto offset = static_cast<size_t>(at - stored.begin());
  const auto line_of = [&](const std::string& text) {
    const size_t begin = offset == 0 ? 0 : text.rfind('\n', offset - 1) + 1;
    return text.substr(begin, std::min(text.find('\n', begin), text.size()) - begin);
  };
  const auto number = 1 + std::count(stored.begin(), at, '\n');
  const std::string a = line_of(stored), b = line_of(wanted);
  return " (line " + std::to_string(number) + ": " + quoted(&a) + " is stored, " + quoted(&b) +
         " is wanted)";
}

struct Difference {
  size_t fields = 0;  ///< how many differ
  std::string text;
};

Difference compare(const std::map<std::string, std::string>& stored,
                   const std::map<std::string, std::string>& wanted) {
  Difference result;
  const auto note = [&](const std::string& name, const std::string* s, const std::string* w) {
    ++result.fields;
    if (!result.text.empty()) result.text += "; ";
    result.text += name + ": " + quoted(s) + " is stored, " + quoted(w) + " is wanted";
    if (s != nullptr && w != nullptr && s->find('\n') != std::string::npos) {
      result.text += first_difference(*s, *w);
    }
  };
  for (const auto& [name, value] : wanted) {
    const auto at = stored.find(name);
    if (at == stored.end()) {
      note(name, nullptr, &value);
    } else if (at->second != value) {
      note(name, &at->second, &value);
    }
  }
  for (const auto& [name, value] : stored) {
    if (!wanted.contains(name)) note(name, &value, nullptr);
  }
  return result;
}

}  // namespace

std::string explain_miss(cache::Store& store, const cache::Key& wanted) {
  const auto entries = store.list();
  if (!entries) return "the cache cannot be read: " + entries.error().message;
  if (entries->empty()) return "the cache is empty";
  const auto wanted_fields = cache::parse_key(wanted.text);
  if (!wanted_fields) return wanted_fields.error().message;
  const auto wanted_named = named_fields(*wanted_fields);

  std::optional<Difference> nearest;
  std::string nearest_digest;
  for (const cache::EntryInfo& entry : *entries) {
    const auto shown = store.show(entry.digest);
    if (!shown || shown->empty()) continue;
    Difference difference = compare(named_fields(shown->front().key), wanted_named);
    if (!nearest || difference.fields < nearest->fields) {
      nearest = std::move(difference);
      nearest_digest = entry.digest;
    }
  }
  if (!nearest) return "no entry of the cache can be read";
  if (nearest->fields == 0) return "entry " + nearest_digest + " has this key, of another compiler";
  return "the nearest of " + std::to_string(entries->size()) + " entries, " + nearest_digest +
         ", differs in " + nearest->text;
}

}  // namespace laya::jit
