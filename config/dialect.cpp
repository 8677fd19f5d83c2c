#include "config/dialect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "config/dialects/axolotl.h"
#include "config/dialects/llamafactory.h"
#include "config/keys.h"

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

using Keys = std::vector<std::string_view>;

bool lists(const Keys& keys, std::string_view key) {
  return std::ranges::find(keys, key) != keys.end();
}

Keys keys_in(const Json& document, Keys keys) {
  std::erase_if(keys, [&](std::string_view key) { return !document.contains(key); });
  return keys;
}

/// A dialect, and the keys of a document that decide for it.
struct DialectClaim {
  const Dialect* dialect;
  Keys keys;
};

/// The keys that decide for a dialect: sure ones, or two usual ones that mean nothing in the others.
Keys deciding_keys(const Dialect& dialect, const Json& document) {
  Keys sure = keys_in(document, dialect.table.list("sure")), usual = keys_in(document, dialect.table.list("usual"));
  if (!sure.empty() || document.contains("model_name_or_path")) return sure;
  std::erase_if(usual, [&](std::string_view key) {
    return std::ranges::any_of(table(), [&](const Dialect& other) {
      return &other != &dialect && (lists(other.table.list("sure"), key) || lists(other.table.list("usual"), key));
    });
  });
  return usual.size() >= 2 ? usual : Keys();
}

/// Without those whose keys are all usual in another dialect with a claim: `lr_scheduler` says nothing beside
/// `sample_packing`.
std::vector<DialectClaim> claims_on(const Json& document) {
  std::vector<DialectClaim> all, own;
  for (const Dialect& d : table())
    if (Keys keys = deciding_keys(d, document); !keys.empty()) all.push_back({&d, std::move(keys)});
  std::ranges::copy_if(all, std::back_inserter(own), [&](const DialectClaim& claim) {
    return std::ranges::none_of(all, [&](const DialectClaim& other) {
      const Keys usual = other.dialect->table.list("usual");
      return other.dialect != claim.dialect &&
             std::ranges::all_of(claim.keys, [&](std::string_view key) { return lists(usual, key); });
    });
  });
  return own;
}

std::string dialect_names() {
  std::vector<std::string_view> names;
  for (const Dialect& d : table()) names.push_back(d.name());
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::span<const Dialect> dialects() {
  return table();
}

const Dialect& detect_dialect(const Json& document, std::string_view name) {
  if (const auto it = document.find("dialect"); it != document.end() && it->is_string()) {
    const auto at = std::ranges::find(table(), it->get<std::string>(), &Dialect::name);
    if (at != table().end()) return *at;
    fail(ErrorKind::usage, {.cause = fmt::format("there is no config dialect {}", show(*it)),
                            .place = "dialect",
                            .remedy = fmt::format("choose one of {}", dialect_names())});
  }
  const std::vector<DialectClaim> claims = claims_on(document);
  if (claims.size() > 1)
    fail(ErrorKind::usage,
         {.cause =
              fmt::format("\"{}\" is a key of the dialect {} and \"{}\" one of {}; their defaults differ",
                          claims[0].keys[0], claims[0].dialect->name(), claims[1].keys[0], claims[1].dialect->name()),
          .place = std::string(name),
          .remedy =
              fmt::format("use the names of one dialect, or say which with \"dialect\": one of {}", dialect_names())});
  if (!claims.empty()) return *claims[0].dialect;
  if (!document.contains("model_name_or_path"))
    for (const Dialect& d : table())
      if (keys_in(document, d.table.list("usual")).size() >= 2) return d;
  return table()[0];
}

}  // namespace qtrain
