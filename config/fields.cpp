#include "config/fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "config/dialect_table.h"
#include "config/keys.h"
#include "core/secrets.h"
#include "model/recompute.h"
#include "optim/table.h"

namespace qtrain {
namespace {

template <class T>
constexpr bool is_optional = false;
template <class T>
constexpr bool is_optional<std::optional<T>> = true;
template <class T>
constexpr bool is_word = std::is_enum_v<T> && !std::is_same_v<T, CopyChoice>;

template <class T>
bool is_json_of(const Json& j) {
  if constexpr (std::is_same_v<T, double>) return j.is_number();
  return std::is_same_v<T, Json> ? j.is_object() : j.type() == Json(T()).type();
}

// Each `read` parses a JSON value and returns false if it has another type.

template <class T>
bool read(const Json& j, T& out) {
  if (is_json_of<T>(j)) j.get_to(out);
  return is_json_of<T>(j);
}
bool read(const Json& j, std::int64_t& out) {
  double d = 0;
  if (!read(j, d) || d != std::floor(d) || std::abs(d) > 0x1p62) return false;
  out = j.is_number_float() ? static_cast<std::int64_t>(d) : j.get<std::int64_t>();
  return true;
}
bool read(const Json& j, std::vector<std::string>& out) {
  const Json list = j.is_string() ? Json::array({j}) : j;
  if (!list.is_array() || !std::ranges::all_of(list, [](const Json& e) { return e.is_string(); })) return false;
  out = list.get<std::vector<std::string>>();
  return true;
}
bool read(const Json& j, std::vector<std::int64_t>& out) {
  out.clear();
  for (const Json& e : j.is_array() ? j : Json::array({j}))
    if (!read(e, out.emplace_back())) return false;
  return true;
}
bool read(const Json& j, Recompute& out) {
  if (j.is_boolean()) out.policy = j.get<bool>() ? "block" : "none";
  if (!j.is_string()) return j.is_boolean();
  const auto name = j.get<std::string>();
  if (name != "full" && name != Recompute::kAuto && !RecomputePolicy::parse(name)) return false;
  out.policy = name == "full" ? "block" : name;
  return true;
}
bool read(const Json& j, LoraInit& out) {
  const std::optional<LoraInit> init = LoraInit::parse(j);
  if (init) out = *init;
  return init.has_value();
}
bool read(const Json& j, CopyChoice& out) {
  if (j.is_boolean()) out = j.get<bool>() ? CopyChoice::always : CopyChoice::never;
  if (j == "auto") out = CopyChoice::automatic;
  return j.is_boolean() || j == "auto";
}
template <class E>
requires is_word<E>
bool read(const Json& j, E& out) {
  const auto names = names_of<E>();
  const auto at = j.is_string() ? std::ranges::find(names, j.get_ref<const std::string&>()) : names.end();
  if (at != names.end()) out = static_cast<E>(at - names.begin());
  return at != names.end();
}
template <class T>
bool read(const Json& j, std::optional<T>& out) {
  if (j.is_null()) return out.reset(), true;
  return read(j, out ? *out : out.emplace());
}

template <class T>
Json json_of(const T& v) {
  if constexpr (is_optional<T>)
    return v ? json_of(*v) : Json(nullptr);
  else if constexpr (is_word<T>)
    return names_of<T>()[static_cast<std::size_t>(v)];
  else if constexpr (std::is_same_v<T, Recompute>)
    return v.policy == "none" || v.policy == "block" ? Json(v.policy == "block") : Json(v.policy);
  else if constexpr (std::is_same_v<T, LoraInit>)
    return v.json();
  else if constexpr (std::is_same_v<T, CopyChoice>)
    return v == CopyChoice::automatic ? Json("auto") : Json(v == CopyChoice::always);
  else
    return v;
}

/// What is wrong with a value of the right type, or empty.
std::string problem_of(const Field& f, const Json& value, const Json& written) {
  if (value.is_number() && !f.range.contains(value.get<double>()))
    return fmt::format("must be {}, got {}", f.range.text(), show(f.name, written));
  const bool known = f.words.empty() || !value.is_string() ||
                     std::ranges::find(f.words, value.get_ref<const std::string&>()) != f.words.end();
  return known ? "" : fmt::format("expected {}, got {}", f.type, show(f.name, written));
}

template <class T>
std::string store(const Field& f, T& member, const Json& j) {
  T value = member;
  if (!read(j, value)) return fmt::format("expected {}, got {}", f.type, show(f.name, j));
  std::string problem = is_word<T> ? "" : problem_of(f, json_of(value), j);
  if (problem.empty()) member = std::move(value);
  return problem;
}

Range range_of(const Json& row) {
  static const std::map<std::string, Range> kRanges{{"count", {.low = 1, .high = 1 << 30}},
                                                    {"not_negative", {.low = 0}},
                                                    {"positive", {.low = 0, .low_open = true}},
                                                    {"share", {.low = 0, .high = 1, .high_open = true}}};
  if (!row.contains("range")) return {};
  const Json& range = row["range"];
  return range.is_array() ? Range{.low = range[0], .high = range[1]} : kRanges.at(range);
}

/// The accepted words of a row or of its enumeration.
template <class T>
std::vector<std::string> words_of(const Json& row) {
  if constexpr (is_optional<T>) return words_of<typename T::value_type>(row);
  std::span<const std::string_view> words;
  if constexpr (is_word<T>) words = std::is_same_v<T, ScheduleKind> ? available_schedules() : names_of<T>();
  if (row.contains("words") && row["words"].is_array()) return row["words"].get<std::vector<std::string>>();
  if (row.contains("words")) words = optimizer_names();
  return {words.begin(), words.end()};
}

/// How messages describe the values of a field.
std::string type_text(const std::string& type, const Field& f) {
  if (f.name == "optim") return fmt::format("one of {}", optimizer_summary());
  if (!f.words.empty()) return fmt::format("one of {}", fmt::join(f.words, ", "));
  return dialect_table("fields").object("types").at(type);
}

/// Makes a field from its row and its member.
template <class S, class T>
Field field_of(Field f, const Json& row, S Config::*part, T S::*member) {
  constexpr std::string_view kOrNull = " or null";
  std::string type = row.at("type");
  f.takes_null = type.ends_with(kOrNull);
  if (f.takes_null) type.resize(type.size() - kOrNull.size());
  f.doc = row.at("doc");
  f.resume = value_named<OnResume>(row.at("resume").get<std::string>());
  f.secret = row.value("secret", is_secret_name(f.name));
  f.range = range_of(row);
  f.words = words_of<T>(row);
  f.type = type_text(type, f) + (f.takes_null ? std::string(kOrNull) : "");
  f.is_switch = type == "bool" || type == "Recompute" || type == "CopyChoice" || type == "LoraInit";
  f.read = [=](const Config& c) { return json_of(c.*part.*member); };
  f.store = [=](const Field& field, Config& c, const Json& j) { return store(field, c.*part.*member, j); };
  return f;
}

std::vector<Field> read_fields() {
  std::vector<std::pair<Field, Json>> rows;
  for (const auto& [section, keys] : dialect_table("fields").data.items())
    for (const auto& [name, row] : keys.items())
      if (section != "types" && section != "words") rows.push_back({{.name = name, .section = section}, row});
  std::vector<Field> all;
  for_each_member([&](auto part, auto member) {
    auto& [field, row] = rows.at(all.size());
    all.push_back(field_of(std::move(field), row, part, member));
  });
  check(all.size() == rows.size(), "a row of fields.yaml has no member");
  return all;
}

}  // namespace

std::span<const Field> fields() {
  static const std::vector<Field> kFields = read_fields();
  return kFields;
}

const Field* find_field(std::string_view name) {
  const auto at = std::ranges::find(fields(), name, &Field::name);
  return at == fields().end() ? nullptr : &*at;
}

OnResume on_resume(std::string_view key) {
  const Field* field = find_field(key);
  return field ? field->resume : OnResume::refused;
}

Assigned assign_field(Config& config, std::string_view key, const Json& value) {
  const Field* field = find_field(key);
  if (!field || (value.is_null() && !field->takes_null)) return {};
  const std::string error = field->store(*field, config, value);
  if (error.empty() || !value.is_string()) return {error};
  const auto text = value.get<std::string>();
  std::vector<std::string_view> words(field->words.begin(), field->words.end());
  if (key == "optim") words = available_optimizers();  // do not suggest unavailable optimizers
  if (const auto near = nearest(text, words); !near.empty()) return {error, fmt::format("did you mean \"{}\"?", near)};
  const Json inner = Json::parse(text, nullptr, false);  // whether it would fit without quotes
  Config scratch;
  const bool fits = !inner.is_discarded() && !inner.is_null() && field->store(*field, scratch, inner).empty();
  return {error, fits ? "write it without quotes" : ""};
}

Json values_json(const Config& config) {
  Json values = Json::object();
  for (const Field& f : fields()) values[f.name] = f.read(config);
  return values;
}

Json rows_json(const DataSection& section) {
  constexpr std::array<std::string_view, 5> kElsewhere{"dataset_name", "eval_dataset_name", "eval_split",
                                                       "token_cache_dir", "token_cache_gb"};
  Json values = Json::object();
  for (const Field& f : fields())
    if (f.section == "Data" && std::ranges::find(kElsewhere, f.name) == kElsewhere.end())
      values[f.name] = f.read({.data = section});
  return values;
}

bool Range::contains(double v) const {
  return (low_open ? v > low : v >= low) && (high_open ? v < high : v <= high);
}

std::string Range::text() const {
  if (!std::isfinite(low)) return "";
  if (!std::isfinite(high)) return low_open ? fmt::format("greater than {}", low) : fmt::format("at least {}", low);
  return high >= 1 << 20 ? fmt::format("at least {:.15g} and at most {:.15g}", low, high)
                         : fmt::format("in [{}, {}{}", low, high, high_open ? ')' : ']');
}

}  // namespace qtrain
