#include "config/dialect_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>

#include "config/keys.h"

namespace qtrain {
namespace {

using Keys = std::vector<std::string_view>;

Keys keys_in(const Json& document, Keys keys) {
  std::erase_if(keys, [&](std::string_view key) { return !document.contains(key); });
  return keys;
}

/// A dialect, and the keys of a document that decide for it.
struct DialectClaim {
  const DialectTable* dialect;
  Keys keys;
};

/// The keys that decide for a dialect: sure ones, or two usual ones that mean nothing in the others.
Keys deciding_keys(const DialectTable& dialect, const Json& document) {
  Keys sure = keys_in(document, dialect.list("sure")), usual = keys_in(document, dialect.list("usual"));
  if (!sure.empty() || document.contains("model_name_or_path")) return sure;
  std::erase_if(usual, [&](std::string_view key) {
    return std::ranges::any_of(dialects(), [&](const DialectTable* other) {
      return other != &dialect && (other->lists("sure", key) || other->lists("usual", key));
    });
  });
  return usual.size() >= 2 ? usual : Keys();
}

/// Without those whose keys are all usual in another dialect with a claim: `lr_scheduler` says nothing beside
/// `sample_packing`.
std::vector<DialectClaim> claims_on(const Json& document) {
  std::vector<DialectClaim> all, own;
  for (const DialectTable* d : dialects())
    if (Keys keys = deciding_keys(*d, document); !keys.empty()) all.push_back({d, std::move(keys)});
  std::ranges::copy_if(all, std::back_inserter(own), [&](const DialectClaim& claim) {
    return std::ranges::none_of(all, [&](const DialectClaim& other) {
      return other.dialect != claim.dialect &&
             std::ranges::all_of(claim.keys, [&](std::string_view key) { return other.dialect->lists("usual", key); });
    });
  });
  return own;
}

std::string dialect_names() {
  return fmt::format("{}", fmt::join(dialects() | std::views::transform(&DialectTable::name), ", "));
}

}  // namespace

const std::vector<const DialectTable*>& dialects() {
  static const std::vector<const DialectTable*> kDialects{&common_table(), &dialect_table("expert"),
                                                          &dialect_table("modelforge"), &dialect_table("llamafactory"),
                                                          &dialect_table("axolotl")};
  return kDialects;
}

const DialectTable& detect_dialect(const Json& document, std::string_view name) {
  if (const auto it = document.find("dialect"); it != document.end() && it->is_string()) {
    const auto at = std::ranges::find(dialects(), it->get<std::string>(), &DialectTable::name);
    if (at != dialects().end()) return **at;
    fail(ErrorKind::usage, {.cause = fmt::format("there is no config dialect {}", show(*it)),
                            .place = "dialect",
                            .remedy = fmt::format("choose one of {}", dialect_names())});
  }
  const std::vector<DialectClaim> claims = claims_on(document);
  if (claims.size() > 1)
    fail(ErrorKind::usage,
         {.cause = fmt::format("\"{}\" is a key of the dialect {} and \"{}\" one of {}; their defaults differ",
                               claims[0].keys[0], claims[0].dialect->name, claims[1].keys[0], claims[1].dialect->name),
          .place = std::string(name),
          .remedy =
              fmt::format("use the names of one dialect, or say which with \"dialect\": one of {}", dialect_names())});
  if (!claims.empty()) return *claims[0].dialect;
  if (!document.contains("model_name_or_path"))
    for (const DialectTable* d : dialects())
      if (keys_in(document, d->list("usual")).size() >= 2) return *d;
  return common_table();
}

}  // namespace qtrain
