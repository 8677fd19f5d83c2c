#include "config/keys.h"

#include <algorithm>

#include "config/dialect_table.h"
#include "config/fields.h"
#include "core/secrets.h"

namespace qtrain {
namespace {

/// Number of edits (insert, delete, replace, swap neighbors) from a to b.
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i)
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t other = a[i - 1] == b[j - 1] ? 0 : 1;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + other});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

}  // namespace

std::vector<std::string_view> field_names() {
  std::vector<std::string_view> names;
  for (const Field& field : fields()) names.emplace_back(field.name);
  return names;
}

std::string_view nearest(std::string_view word, std::span<const std::string_view> names) {
  if (word.size() > 64) return {};
  std::string_view best;
  std::size_t fewest = word.size() / 3 + 1;  // a third of the letters may differ
  const auto look = [&](std::size_t longest) {
    for (const auto name : names)
      if (const std::size_t n = edits(word, name.substr(0, longest)); n < fewest) fewest = n, best = name;
  };
  look(std::string_view::npos);
  if (best.empty() && word.size() >= 4) look(word.size());  // compare with prefixes of longer names
  return best;
}

std::string hint(const Diagnostics& diagnostics, std::string_view word, std::span<const std::string_view> names) {
  constexpr std::size_t kMaxHints = 20;
  return diagnostics.count_problems() < kMaxHints ? std::string(nearest(word, names)) : "";
}

std::vector<std::string_view> known_keys() {
  std::vector<std::string_view> all = field_names();
  for (const Json& names : common_table().object("also"))
    for (const Json& name : names) all.emplace_back(name.get_ref<const std::string&>());
  for (const DialectTable* d : dialects())
    for (const std::string_view name : d->names())
      if (name.find('.') == name.npos) all.push_back(name);
  return all;
}

std::string_view canonical_key(std::string_view name) {
  for (const auto& [key, names] : common_table().object("also").items())
    if (std::ranges::find(names, Json(name)) != names.end()) return key;
  return name;
}

bool is_config_key(std::string_view key) {
  return find_field(key) || canonical_key(key) != key || common_table().find(key);
}

bool is_unset(const Json& value) {
  for (const Json& nothing : {Json(), Json(false), Json(0), Json(""), Json("none"), Json("auto")})
    if (value == nothing) return true;
  return value.is_structured() && value.empty();
}

std::string show(const Json& value) {
  constexpr std::size_t kLongest = 80;
  std::string text = redacted("", value).dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() <= kLongest) return text;
  std::size_t end = kLongest;
  while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // do not cut within a UTF-8 character
  return text.substr(0, end) + "...";
}

std::string show(std::string_view key, const Json& value) {
  return is_secret_key(key) && !is_unset(value) ? std::string(kRedacted) : show(value);
}

bool is_secret_key(std::string_view key) {
  const std::string_view name = key.substr(key.rfind('.') + 1);
  const Field* field = find_field(canonical_key(name));
  return field ? field->secret : is_secret_name(name);
}

}  // namespace qtrain
