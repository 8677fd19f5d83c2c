#include "data/source/columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

namespace qtrain {
namespace {

/// Columns that may hold lists of messages.
constexpr std::array<std::string_view, 4> kTalks = {"messages", "conversations", "prompt", "completion"};

using KeyNames = std::map<std::string, std::string>;

/// The object with its keys in their order under the names that `names` (ours -> theirs) gives them.
Json with_keys(Json object, const KeyNames& names) {
  if (names.empty()) return object;
  KeyNames ours;  // by theirs
  for (const auto& [to, from] : names)
    if (object.contains(from)) ours[from] = to;
  Json out = Json::object();
  for (auto& [key, value] : object.items()) {
    const auto renamed = ours.find(key);
    const bool is_target = names.contains(key) && ours.contains(names.at(key));
    if (renamed != ours.end())
      out[renamed->second] = std::move(value);
    else if (!is_target)
      out[key] = std::move(value);
  }
  return out;
}

Json only(Json row, const std::vector<std::string>& keep) {
  Json out = Json::object();
  for (auto& [key, value] : row.items())
    if (std::find(keep.begin(), keep.end(), key) != keep.end()) out[key] = std::move(value);
  return out;
}

[[noreturn]] void bad_map(const char* key, const std::string& cause) {
  fail(ErrorKind::usage,
       {.cause = cause,
        .place = key,
        .remedy = "Map what the program calls it to what the rows call it: {\"prompt\": \"question\"}."});
}

const Json& object_at(const Json& settings, const char* key) {
  static const Json kNone = Json::object();
  const auto at = settings.find(key);
  if (at == settings.end() || at->is_null()) return kNone;
  if (!at->is_object()) bad_map(key, "no object but " + std::string(at->type_name()));
  return *at;
}

KeyNames names_at(const Json& settings, const char* key) {
  KeyNames names;
  std::set<std::string> used;
  for (const auto& [ours, theirs] : object_at(settings, key).items()) {
    if (theirs.is_null()) continue;
    if (!theirs.is_string()) bad_map(key, "the name for '" + ours + "' is no string");
    if (!used.insert(theirs.get<std::string>()).second)
      bad_map(key, fmt::format("'{}' stands for more than one column", theirs.get<std::string>()));
    if (ours != theirs) names[ours] = theirs.get<std::string>();
  }
  return names;
}

Json renamed_message(Json message, const ColumnMap& map) {
  if (!message.is_object()) return message;
  message = with_keys(std::move(message), map.message_keys);
  for (const char* key : {"role", "from"}) {
    const auto role = message.find(key);
    if (role == message.end() || !role->is_string()) continue;
    const auto known = map.roles.find(role->get_ref<const std::string&>());
    if (known != map.roles.end()) *role = known->second;
  }
  return message;
}

}  // namespace

Json ColumnMap::renamed(Json row) const {
  if (!keep.empty()) row = only(std::move(row), keep);
  row = with_keys(std::move(row), columns);
  if (message_keys.empty() && roles.empty()) return row;
  for (const std::string_view key : kTalks) {
    const auto talk = row.find(key);
    if (talk == row.end() || !talk->is_array()) continue;
    for (Json& message : *talk) message = renamed_message(std::move(message), *this);
  }
  return row;
}

ColumnMap read_column_map(const Json& settings) {
  constexpr const char* kRoles = "role_mapping";
  ColumnMap map{.columns = names_at(settings, "column_mapping"),
                .message_keys = names_at(settings, "message_property_mappings")};
  for (const auto& [ours, theirs] : object_at(settings, kRoles).items())
    for (const Json& name : theirs.is_array() ? theirs : Json::array({theirs})) {
      if (!name.is_string()) bad_map(kRoles, "a name for '" + ours + "' is no string");
      const auto [known, is_new] = map.roles.emplace(name.get<std::string>(), ours);
      if (!is_new && known->second != ours) bad_map(kRoles, "'" + known->first + "' stands for two roles");
    }
  return map;
}

}  // namespace qtrain
