#include "config/assign.h"

#include <fmt/format.h>

#include "config/values.h"

namespace qtrain {
namespace {

/// Words that may be meant by another one: names of optimizers that are not here are none.
template <class T>
std::vector<std::string_view> offered(const Spec& spec) {
  const std::span<const std::string_view> words = words_of<T>(spec);
  if (words.data() == optimizer_names().data()) return available_optimizers();
  return {words.begin(), words.end()};
}

struct AssignVisitor {
  std::string_view key;
  const Json& value;
  std::optional<std::string> error = {};
  std::string near = {};  ///< the word that was probably meant

  void section(std::string_view) {}
  template <class T>
  void operator()(std::string_view name, T& member, const Spec& spec) {
    if (name != key || (value.is_null() && !IsOptional<T>::value)) return;
    error = assign(value, member, spec);
    if (error && value.is_string()) near = nearest(value.get_ref<const std::string&>(), offered<T>(spec));
  }
};

struct NullVisitor {
  std::string_view key;
  bool takes_null = false;

  void section(std::string_view) {}
  template <class T>
  void operator()(std::string_view name, const T&, const Spec&) {
    if (name == key) takes_null = IsOptional<T>::value;
  }
};

/// The remedy for a value in quotes that would do without them.
std::string without_quotes(std::string_view key, const Json& value) {
  const Json inner = value.is_string() ? Json::parse(value.get<std::string>(), nullptr, false) : Json();
  if (inner.is_discarded() || inner.is_null()) return {};
  Config scratch;
  AssignVisitor visit{key, inner};
  config_fields(visit, scratch);
  return visit.error ? "" : "write it without quotes";
}

}  // namespace

Assigned assign_field(Config& config, std::string_view key, const Json& value) {
  AssignVisitor visit{key, value};
  config_fields(visit, config);
  if (!visit.error) return {};
  return {*visit.error,
          visit.near.empty() ? without_quotes(key, value) : fmt::format("did you mean \"{}\"?", visit.near)};
}

bool takes_null(std::string_view key) {
  NullVisitor visit{key};
  const Config config;
  config_fields(visit, config);
  return visit.takes_null;
}

}  // namespace qtrain
