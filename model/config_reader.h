#pragma once
#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/formats/json.h"

namespace qtrain {

/// Typed fields of one JSON object. `null` means absent; a field of another type is an input error that names the key.
struct ConfigReader {
  const Json& json;
  const std::string& name;  ///< file name, which starts every message

  [[noreturn]] void refuse(const std::string& cause, const std::string& remedy = {}) const {
    fail(ErrorKind::input, {.cause = cause, .place = name, .remedy = remedy});
  }
  const Json* get(const char* key) const {
    const auto it = json.find(key);
    return it == json.end() || it->is_null() ? nullptr : &*it;
  }
  std::int64_t positive(const char* key, std::optional<std::int64_t> otherwise = {}) const {
    const Json* v = get(key);
    if (!v && otherwise) return *otherwise;
    if (!v) refuse(fmt::format("\"{}\" is missing", key));
    constexpr std::int64_t kMax = std::int64_t{1} << 31;
    if (!v->is_number_integer() || *v < 1 || *v >= kMax)
      refuse(fmt::format("\"{}\" must be a positive integer, not {}", key, v->dump()));
    return v->get<std::int64_t>();
  }
  double number(const char* key, double otherwise) const {
    const Json* v = get(key);
    if (v && !v->is_number()) refuse(fmt::format("\"{}\" must be a number, not {}", key, v->dump()));
    return v ? v->get<double>() : otherwise;
  }
  /// A number above 0.
  double positive_number(const char* key, double otherwise) const {
    const double v = number(key, otherwise);
    if (!(v > 0) || !std::isfinite(v)) refuse(fmt::format("\"{}\" must be greater than 0, not {}", key, v));
    return v;
  }
  bool flag(const char* key, bool otherwise) const {
    const Json* v = get(key);
    if (v && !v->is_boolean()) refuse(fmt::format("\"{}\" must be true or false, not {}", key, v->dump()));
    return v ? v->get<bool>() : otherwise;
  }
  std::string text(const char* key, const std::string& otherwise) const {
    const Json* v = get(key);
    if (v && !v->is_string()) refuse(fmt::format("\"{}\" must be a string, not {}", key, v->dump()));
    return v ? v->get<std::string>() : otherwise;
  }
  /// A token id or a list of them; empty when absent.
  std::vector<std::int32_t> tokens(const char* key) const {
    std::vector<std::int32_t> ids;
    const Json* v = get(key);
    if (!v) return ids;
    const Json list = v->is_array() ? *v : Json::array({*v});
    constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
    for (const Json& id : list) {
      if (!id.is_number_integer() || id < -1 || id > kMax)
        refuse(fmt::format("\"{}\" must be a token id or a list of them, not {}", key, v->dump()));
      ids.push_back(id.get<std::int32_t>());
    }
    return ids;
  }
};

}  // namespace qtrain
