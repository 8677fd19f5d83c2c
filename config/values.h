#pragma once
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "config/fields.h"
#include "config/keys.h"
#include "model/recompute.h"

namespace qtrain {

/// How one C++ type of a config stands in JSON: what it is called, how it is read and how it is written. `read` returns
/// false when the JSON value is of another type.
template <class T>
struct JsonValue;

template <>
struct JsonValue<bool> {
  static std::string type(const Spec&) { return "true or false"; }
  static bool read(const Json& j, bool& out) {
    if (j.is_boolean()) out = j.get<bool>();
    return j.is_boolean();
  }
  static Json write(bool v) { return v; }
};

template <>
struct JsonValue<std::int64_t> {
  static std::string type(const Spec&) { return "an integer"; }
  static bool read(const Json& j, std::int64_t& out) {
    if (!j.is_number()) return false;
    const double d = j.get<double>();
    if (d != std::floor(d) || std::abs(d) > 0x1p62) return false;
    out = j.is_number_float() ? static_cast<std::int64_t>(d) : j.get<std::int64_t>();
    return true;
  }
  static Json write(std::int64_t v) { return v; }
};

template <>
struct JsonValue<double> {
  static std::string type(const Spec&) { return "a number"; }
  static bool read(const Json& j, double& out) {
    if (j.is_number()) out = j.get<double>();
    return j.is_number();
  }
  static Json write(double v) { return v; }
};

template <>
struct JsonValue<std::string> {
  static std::string type(const Spec& spec) {
    if (!spec.summary.empty()) return fmt::format("one of {}", spec.summary);
    return spec.choices.empty() ? "a string" : fmt::format("one of {}", fmt::join(spec.choices, ", "));
  }
  static bool read(const Json& j, std::string& out) {
    if (j.is_string()) out = j.get<std::string>();
    return j.is_string();
  }
  static Json write(const std::string& v) { return v; }
};

template <>
struct JsonValue<std::vector<std::string>> {
  static std::string type(const Spec&) { return "a string or a list of strings"; }
  static bool read(const Json& j, std::vector<std::string>& out) {
    if (j.is_string()) return out = {j.get<std::string>()}, true;
    if (!j.is_array() || !std::all_of(j.begin(), j.end(), [](const Json& e) { return e.is_string(); })) return false;
    out.clear();
    for (const Json& e : j) out.push_back(e.get<std::string>());
    return true;
  }
  static Json write(const std::vector<std::string>& v) {
    Json list = Json::array();
    for (const auto& s : v) list.push_back(s);
    return list;
  }
};

template <>
struct JsonValue<Json> {
  static std::string type(const Spec&) { return "an object"; }
  static bool read(const Json& j, Json& out) {
    if (j.is_object()) out = j;
    return j.is_object();
  }
  static Json write(const Json& v) { return v; }
};

template <>
struct JsonValue<std::vector<Json>> {
  static std::string type(const Spec&) { return "a list"; }
  static bool read(const Json& j, std::vector<Json>& out) {
    if (j.is_array()) out = {j.begin(), j.end()};
    return j.is_array();
  }
  static Json write(const std::vector<Json>& v) {
    Json list = Json::array();
    for (const Json& entry : v) list.push_back(entry);
    return list;
  }
};

template <class T>
struct JsonValue<std::optional<T>> {
  static std::string type(const Spec& spec) { return JsonValue<T>::type(spec) + " or null"; }
  static bool read(const Json& j, std::optional<T>& out) {
    if (j.is_null()) return out.reset(), true;
    T value{};
    if (!JsonValue<T>::read(j, value)) return false;
    out = std::move(value);
    return true;
  }
  static Json write(const std::optional<T>& v) { return v ? JsonValue<T>::write(*v) : Json(nullptr); }
};

/// Names of an enumeration, of a schedule included.
template <class E>
std::span<const std::string_view> enum_names() {
  if constexpr (std::is_same_v<E, ScheduleKind>)
    return schedule_names();
  else
    return EnumNames<E>::values;
}

/// Those that are offered: a schedule that is not here has an error of its own.
template <class E>
std::span<const std::string_view> offered_names() {
  if constexpr (std::is_same_v<E, ScheduleKind>)
    return available_schedules();
  else
    return enum_names<E>();
}

template <class E>
requires std::is_enum_v<E>
struct JsonValue<E> {
  static std::string type(const Spec&) { return fmt::format("one of {}", fmt::join(offered_names<E>(), ", ")); }
  static bool read(const Json& j, E& out) {
    if (!j.is_string()) return false;
    const auto names = enum_names<E>();
    const auto at = std::find(names.begin(), names.end(), j.get_ref<const std::string&>());
    if (at == names.end()) return false;
    out = static_cast<E>(at - names.begin());
    return true;
  }
  static Json write(E v) { return std::string(enum_names<E>()[static_cast<std::size_t>(v)]); }
};

/// The words that a field takes, if it takes only some.
template <class T>
std::span<const std::string_view> words_of(const Spec& spec) {
  if constexpr (std::is_enum_v<T>) return offered_names<T>();
  return spec.choices;
}

template <>
struct JsonValue<Recompute> {
  static std::string type(const Spec&) { return R"(true, false, "selective", "blocks:N" or "auto")"; }
  static bool read(const Json& j, Recompute& out) {
    if (j.is_boolean()) return out.policy = j.get<bool>() ? "block" : "none", true;
    if (!j.is_string()) return false;
    const auto name = j.get<std::string>();
    const bool known = name == Recompute::kAuto || RecomputePolicy::parse(name);
    if (known) out.policy = name;
    if (name == "full") out.policy = "block";
    return known || name == "full";
  }
  static Json write(const Recompute& v) {
    if (v.policy == "none" || v.policy == "block") return v.policy == "block";
    return v.policy;
  }
};

template <>
struct JsonValue<KeptCopies> {
  static std::string type(const Spec&) { return R"(true, false or "auto")"; }
  static bool read(const Json& j, KeptCopies& out) {
    if (j.is_boolean()) return out = j.get<bool>() ? KeptCopies::always : KeptCopies::never, true;
    if (j != "auto") return false;
    out = KeptCopies::automatic;
    return true;
  }
  static Json write(KeptCopies v) { return v == KeptCopies::automatic ? Json("auto") : Json(v == KeptCopies::always); }
};

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

/// "in [0, 1)", "at least 1", ...
std::string describe(const Range& range);
bool contains(const Range& range, double value);

/// The number held by a value that has a range, if it holds one.
template <class T>
std::optional<double> number_in(const T& v) {
  if constexpr (std::is_same_v<T, std::int64_t> || std::is_same_v<T, double>) return static_cast<double>(v);
  if constexpr (std::is_same_v<T, std::optional<std::int64_t>> || std::is_same_v<T, std::optional<double>>)
    if (v) return static_cast<double>(*v);
  return {};
}

template <class T>
const std::string* string_in(const T& v) {
  if constexpr (std::is_same_v<T, std::string>) return &v;
  if constexpr (std::is_same_v<T, std::optional<std::string>>) return v ? &*v : nullptr;
  return nullptr;
}

/// Reads `j` into `out`; returns what is wrong with it, or nothing.
template <class T>
std::optional<std::string> assign(const Json& j, T& out, const Spec& spec) {
  T value = out;
  if (!JsonValue<T>::read(j, value)) return fmt::format("expected {}, got {}", JsonValue<T>::type(spec), show(j));
  if (const auto n = number_in(value); n && !contains(spec.range, *n))
    return fmt::format("must be {}, got {}", describe(spec.range), show(j));
  if (const auto* s = string_in(value); s && !spec.choices.empty())
    if (std::find(spec.choices.begin(), spec.choices.end(), *s) == spec.choices.end())
      return fmt::format("expected {}, got {}", JsonValue<T>::type(spec), show(j));
  out = std::move(value);
  return {};
}

}  // namespace qtrain
