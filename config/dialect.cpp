#include "config/dialect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "config/dialects/axolotl.h"
#include "config/dialects/llamafactory.h"

namespace qtrain {
namespace {

const std::vector<Dialect>& table() {
  static const std::vector<Dialect> kTable{{.table = dialect_table("hf")},
                                           {.table = dialect_table("expert")},
                                           {.table = dialect_table("modelforge")},
                                           {.table = dialect_table("llamafactory"), .settle = settle_llamafactory},
                                           {.table = dialect_table("axolotl"), .settle = settle_axolotl}};
  return kTable;
}

std::vector<std::string_view> keys_in(const Json& document, const std::vector<std::string_view>& keys) {
  std::vector<std::string_view> found;
  for (const auto key : keys)
    if (document.contains(std::string(key))) found.push_back(key);
  return found;
}

/// A dialect, and the keys of a document that decide for it.
struct DialectClaim {
  const Dialect* dialect;
  std::vector<std::string_view> keys;
};

bool lists(const std::vector<std::string_view>& keys, std::string_view key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

/// Usual keys of a dialect that mean nothing in the others; two decide as one sure key does.
std::vector<std::string_view> usual_only_in(const Dialect& dialect, const Json& document) {
  auto keys = keys_in(document, dialect.table.list("usual"));
  std::erase_if(keys, [&](std::string_view key) {
    return std::any_of(table().begin(), table().end(), [&](const Dialect& other) {
      return other.name() != dialect.name() &&
             (lists(other.table.list("sure"), key) || lists(other.table.list("usual"), key));
    });
  });
  return keys;
}

std::vector<DialectClaim> claims_on(const Json& document) {
  std::vector<DialectClaim> claims;
  for (const Dialect& d : table()) {
    auto keys = keys_in(document, d.table.list("sure")), usual = usual_only_in(d, document);
    if (keys.empty() && usual.size() >= 2 && !document.contains("model_name_or_path")) keys = std::move(usual);
    if (!keys.empty()) claims.push_back({&d, std::move(keys)});
  }
  return claims;
}

/// Whether all keys of a claim are usual in another dialect with a claim, too: `lr_scheduler` says nothing beside
/// `sample_packing`.
bool is_shared(const DialectClaim& claim, const std::vector<DialectClaim>& all) {
  return std::any_of(all.begin(), all.end(), [&](const DialectClaim& other) {
    return other.dialect != claim.dialect && std::all_of(claim.keys.begin(), claim.keys.end(), [&](auto key) {
             return lists(other.dialect->table.list("usual"), key);
           });
  });
}

std::vector<std::string_view> dialect_names() {
  std::vector<std::string_view> names;
  for (const Dialect& d : table()) names.push_back(d.name());
  return names;
}

const Dialect& dialect_named(std::string_view name) {
  for (const Dialect& d : table())
    if (d.name() == name) return d;
  fail(ErrorKind::usage, {.cause = fmt::format("there is no config dialect \"{}\"", name),
                          .place = "dialect",
                          .remedy = fmt::format("choose one of {}", fmt::join(dialect_names(), ", "))});
}

}  // namespace

std::span<const Dialect> dialects() {
  return table();
}

const Dialect& detect_dialect(const Json& document, std::string_view name) {
  if (const auto it = document.find("dialect"); it != document.end() && it->is_string())
    return dialect_named(it->get<std::string>());
  const std::vector<DialectClaim> all = claims_on(document);
  std::vector<DialectClaim> claims;
  for (const DialectClaim& c : all)
    if (!is_shared(c, all)) claims.push_back(c);
  if (claims.size() > 1)
    fail(ErrorKind::usage,
         {.cause =
              fmt::format("\"{}\" is a key of the dialect {} and \"{}\" one of {}; their defaults differ",
                          claims[0].keys[0], claims[0].dialect->name(), claims[1].keys[0], claims[1].dialect->name()),
          .place = std::string(name),
          .remedy = fmt::format("use the names of one dialect, or say which with \"dialect\": one of {}",
                                fmt::join(dialect_names(), ", "))});
  if (!claims.empty()) return *claims[0].dialect;
  if (!document.contains("model_name_or_path"))
    for (const Dialect& d : table())
      if (keys_in(document, d.table.list("usual")).size() >= 2) return d;
  return table()[0];
}

}  // namespace qtrain
