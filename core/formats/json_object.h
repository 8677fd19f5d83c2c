#pragma once
#include <string>
#include <utility>

#include "core/formats/json.h"

namespace qtrain {

/// Builds an object of any number of members in time that grows with their number: `object[key] = value` looks every
/// key up among all others. Of two members with one name the first keeps its place and the last its value.
class JsonObject {
 public:
  void reserve(std::size_t members) { members_.reserve(members); }
  void add(std::string key, Json value) { members_.emplace_back(std::move(key), std::move(value)); }
  Json take();

 private:
  Json::object_t members_;
};

}  // namespace qtrain
