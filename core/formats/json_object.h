#pragma once
#include <string>
#include <utility>

#include "core/formats/json.h"

namespace qtrain {

/// Builds an object of many members without the quadratic time of `object[key] = value`, which searches all keys. Of
/// two members with the same name, the first keeps its place and the last its value.
class JsonObject {
 public:
  void reserve(std::size_t members) { members_.reserve(members); }
  void add(std::string key, Json value) { members_.emplace_back(std::move(key), std::move(value)); }
  Json take();

 private:
  Json::object_t members_;
};

}  // namespace qtrain
