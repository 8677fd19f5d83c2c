#include "data/source/columns.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <span>
#include <utility>

#include "core/formats/json_object.h"
#include "data/source/raw_rows.h"

namespace qtrain {
namespace {

/// Columns that may contain lists of messages.
constexpr std::array<std::string_view, 4> kTalks = {"messages", "conversations", "prompt", "completion"};

/// Names on our side for columns, message keys and roles.
constexpr std::array<std::string_view, 17> kColumns = {"messages",       "prompt",
                                                       "completion",     "text",
                                                       "conversations",  "instruction",
                                                       "input",          "output",
                                                       "system",         "history",
                                                       "tools",          "input_ids",
                                                       "labels",         "chat_template_kwargs",
                                                       "position_ids",   "assistant_masks",
                                                       "completion_mask"};
constexpr std::array<std::string_view, 11> kMessageKeys = {
    "role",         "content",           "from",     "value",     "name",  "tool_calls",
    "tool_call_id", "reasoning_content", "thinking", "reasoning", "weight"};
constexpr std::array<std::string_view, 8> kRoleNames = {"system",    "user",     "assistant",     "tool",
                                                        "developer", "function", "function_call", "ipython"};

constexpr const char *kColumnKey = "column_mapping", *kMessageKey = "message_property_mappings",
                     *kRoleKey = "role_mapping";

using NameList = std::span<const std::string_view>;
bool holds(NameList names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

using KeyNames = std::map<std::string, std::string>;

/// The object with its keys renamed by `names` (ours -> theirs), in the same order.
Json with_keys(Json object, const KeyNames& names) {
  if (names.empty()) return object;
  KeyNames ours;  // keyed by theirs
  for (const auto& [to, from] : names)
    if (object.contains(from)) ours[from] = to;
  JsonObject out;
  for (auto& [key, value] : object.get_ref<Json::object_t&>()) {
    const auto renamed = ours.find(key);
    const bool is_target = names.contains(key) && ours.contains(names.at(key));
    if (renamed != ours.end())
      out.add(renamed->second, std::move(value));
    else if (!is_target)
      out.add(key, std::move(value));
  }
  return out.take();
}

Json only(Json row, const std::vector<std::string>& keep) {
  JsonObject out;
  for (auto& [key, value] : row.get_ref<Json::object_t&>())
    if (std::find(keep.begin(), keep.end(), key) != keep.end()) out.add(key, std::move(value));
  return out.take();
}

/// Sets the columns built from templates, whose columns come from the original `row`.
void add_texts(const std::map<std::string, std::vector<RowText>>& texts, const Json& row, Json& out) {
  for (const auto& [name, alternatives] : texts) {
    const auto filled = std::find_if(alternatives.begin(), alternatives.end(), [&](auto& t) { return t.filled(row); });
    const RowText& text = filled == alternatives.end() ? alternatives.back() : *filled;
    if (!text.fits(row))
      fail(ErrorKind::input,
           {.cause = fmt::format("column_mapping: the row does not have all of {}, which '{}' is built from",
                                 fmt::join(text.columns(), ", "), name),
            .remedy = "Give a list of templates: the first one whose columns all exist is used."});
    out[name] = text.of(row);
  }
}

[[noreturn]] void bad_map(const char* key, const std::string& cause) {
  fail(ErrorKind::usage,
       {.cause = cause, .place = key, .remedy = "Map our name to the name in the rows: {\"prompt\": \"question\"}."});
}

const Json& object_at(const Json& settings, const char* key) {
  static const Json kNone = Json::object();
  const auto at = settings.find(key);
  if (at == settings.end() || at->is_null()) return kNone;
  if (!at->is_object()) bad_map(key, "not an object but " + std::string(at->type_name()));
  return *at;
}

/// Fails for a map with no known name on our side but only known ones on theirs.
void require_direction(const Json& settings, const char* key, NameList known) {
  Json turned = Json::object();
  std::string ours_last, theirs_last;
  for (const auto& [ours, theirs] : object_at(settings, key).items()) {
    if (holds(known, ours)) return;
    for (const Json& name : theirs.is_array() ? theirs : Json::array({theirs})) {
      if (!name.is_string()) continue;
      if (!holds(known, name.get<std::string>())) return;
      turned[name.get<std::string>()] = ours_last = ours;
      theirs_last = name;
    }
  }
  if (turned.empty()) return;
  const std::string meant =
      key == kColumnKey
          ? ""
          : fmt::format(", or, if this is intended, add an unchanged name: {{\"{0}\": \"{0}\"}}", theirs_last);
  fail(ErrorKind::usage, {.cause = fmt::format("it is the wrong way around: '{}' is a name in the rows", ours_last),
                          .place = key,
                          .remedy = fmt::format("Put our name first: {}{}", dump_json(turned), meant)});
}

bool is_text(const Json& theirs) {
  return theirs.is_array() || (theirs.is_string() && RowText::has_columns(theirs.get_ref<const std::string&>()));
}

std::map<std::string, std::vector<RowText>> texts_at(const Json& settings, const char* key) {
  std::map<std::string, std::vector<RowText>> texts;
  for (const auto& [ours, theirs] : object_at(settings, key).items()) {
    if (!is_text(theirs)) continue;
    for (const Json& text : theirs.is_array() ? theirs : Json::array({theirs})) {
      if (!text.is_string()) bad_map(key, "a text for '" + ours + "' is not a string");
      try {
        texts[ours].emplace_back(text.get_ref<const std::string&>());
      } catch (const Error& e) {  // adds the key
        fail(ErrorKind::usage, {.cause = e.text().cause, .place = key, .remedy = e.text().remedy});
      }
    }
    if (theirs.empty()) bad_map(key, "the list for '" + ours + "' is empty");
  }
  return texts;
}

KeyNames names_at(const Json& settings, const char* key) {
  KeyNames names;
  std::set<std::string> used;
  for (const auto& [ours, theirs] : object_at(settings, key).items()) {
    if (theirs.is_null() || (key == kColumnKey && is_text(theirs))) continue;
    if (!theirs.is_string()) bad_map(key, "the name for '" + ours + "' is not a string");
    const auto name = theirs.get<std::string>();
    if (!used.insert(name).second) bad_map(key, fmt::format("'{}' is used for more than one column", name));
    if (ours != name) names[ours] = name;
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

/// Searches the first rows for the names in a map.
class MapSearch {
 public:
  MapSearch(const ColumnMap& map, SharedMaps shared) : map_(map), shared_(shared) {
    for (const auto& [ours, theirs] : map.columns) columns_[theirs] = ours;
    for (const auto& [ours, theirs] : map.message_keys) keys_[theirs] = ours;
    for (const auto& [ours, texts] : map.texts) texts_.insert(ours);
  }

  bool nothing_left() const { return columns_.empty() && texts_.empty() && keys_.empty(); }
  /// Whether everything was found; message keys only count if there were messages.
  bool found_all() const { return columns_.empty() && texts_.empty() && (keys_.empty() || !saw_messages_); }

  void look_at(const Json& whole) {
    const Json row = map_.keep.empty() ? whole : only(whole, map_.keep);
    for (const auto& [name, value] : row.items()) columns_.erase(name), names_.insert(name);
    if (shared_.columns) std::erase_if(columns_, [&](const auto& column) { return row.contains(column.second); });
    std::erase_if(texts_, [&](const std::string& ours) {
      const std::vector<RowText>& texts = map_.texts.at(ours);
      return std::any_of(texts.begin(), texts.end(), [&](const RowText& text) { return text.fits(row); });
    });
    const Json named = with_keys(row, map_.columns);
    for (const std::string_view key : kTalks)
      if (const auto talk = named.find(key); talk != named.end() && talk->is_array()) look_at_messages(*talk);
  }

  /// Templates that fit no row although the rows have a column of that name; removes them from the search.
  std::vector<std::string> texts_there_already() {
    std::vector<std::string> there;
    for (const std::string& ours : texts_)
      if (shared_.columns && names_.contains(ours)) there.push_back(ours);
    for (const std::string& ours : there) texts_.erase(ours);
    return there;
  }

  /// Describes what is missing from all rows seen, with the key that names it.
  std::string missing() const {
    const auto named = [](const char* key, const std::map<std::string, std::string>& absent) {
      return fmt::format("{} maps '{}' to {}", key, absent.begin()->first, absent.begin()->second);
    };
    if (!columns_.empty()) return named(kColumnKey, columns_) + found("column", names_);
    if (texts_.empty()) return named(kMessageKey, keys_) + found("key of a message", message_keys_);
    const std::vector<std::string>& wanted = map_.texts.at(*texts_.begin()).back().columns();
    return fmt::format("{} builds {} from {}", kColumnKey, *texts_.begin(), fmt::join(wanted, ", ")) +
           found("column", names_);
  }

 private:
  static std::string found(const char* what, const std::set<std::string>& names) {
    return fmt::format(", but the first rows have no such {}: they have {}", what, fmt::join(names, ", "));
  }
  void look_at_messages(const Json& talk) {
    for (const Json& message : talk)
      if (message.is_object()) {
        for (const auto& [name, value] : message.items())
          keys_.erase(name), message_keys_.insert(name), saw_messages_ = true;
        if (shared_.message_keys) std::erase_if(keys_, [&](const auto& key) { return message.contains(key.second); });
      }
  }

  const ColumnMap& map_;
  SharedMaps shared_;
  std::map<std::string, std::string> columns_, keys_;  ///< not found yet -> our name
  std::set<std::string> texts_;
  std::set<std::string> names_, message_keys_;  ///< names seen in rows and messages
  bool saw_messages_ = false;
};

}  // namespace

Json ColumnMap::renamed(Json row) const {
  if (!keep.empty()) row = only(std::move(row), keep);
  const Json own = texts.empty() ? Json() : row;
  row = with_keys(std::move(row), columns);
  add_texts(texts, own, row);
  if (message_keys.empty() && roles.empty()) return row;
  for (const std::string_view key : kTalks) {
    const auto talk = row.find(key);
    if (talk == row.end() || !talk->is_array()) continue;
    for (Json& message : *talk) message = renamed_message(std::move(message), *this);
  }
  return row;
}

ColumnMap read_column_map(const Json& settings) {
  require_direction(settings, kColumnKey, kColumns);
  require_direction(settings, kMessageKey, kMessageKeys);
  require_direction(settings, kRoleKey, kRoleNames);
  ColumnMap map{.columns = names_at(settings, kColumnKey),
                .texts = texts_at(settings, kColumnKey),
                .message_keys = names_at(settings, kMessageKey)};
  for (const auto& [ours, theirs] : object_at(settings, kRoleKey).items())
    for (const Json& name : theirs.is_array() ? theirs : Json::array({theirs})) {
      if (!name.is_string()) bad_map(kRoleKey, "a name for '" + ours + "' is not a string");
      const auto [known, is_new] = map.roles.emplace(name.get<std::string>(), ours);
      if (!is_new && known->second != ours) bad_map(kRoleKey, "'" + known->first + "' is used for two roles");
    }
  return map;
}

void require_known_columns(const ColumnMap& map, std::string_view text_field) {
  const auto require = [&](const std::string& ours) {
    if (holds(kColumns, ours) || ours == text_field) return;
    fail(ErrorKind::usage, {.cause = fmt::format("'{}' is not a known column", ours),
                            .place = kColumnKey,
                            .remedy = fmt::format("The known columns are {}.", fmt::join(kColumns, ", "))});
  };
  for (const auto& [ours, theirs] : map.columns) require(ours);
  for (const auto& [ours, texts] : map.texts) require(ours);
}

ColumnMap map_for(ColumnMap map, const RawRows& rows, SharedMaps shared) {
  constexpr std::int64_t kLooked = 1000;
  if (rows.size() == 0) return map;
  MapSearch search(map, shared);
  for (std::int64_t i = 0; i < std::min(rows.size(), kLooked) && !search.nothing_left(); ++i)
    search.look_at(rows.parse(i));
  const std::vector<std::string> unneeded = search.texts_there_already();
  if (!search.found_all())
    fail(ErrorKind::input, {.cause = search.missing(),
                            .place = rows.place(0),
                            .remedy = "Use the name in the rows, or remove the mapping."});
  for (const std::string& ours : unneeded) map.texts.erase(ours);
  return map;
}

}  // namespace qtrain
