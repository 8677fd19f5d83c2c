#include "data/source/split_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qtrain {
namespace {

using Names = std::vector<std::filesystem::path>;

enum class SplitPart : std::uint8_t { none, train, validation, test };

/// Whether a character is part of a word, such as "train" in "train-00000".
using IsOfWord = int (*)(int);

std::vector<std::string> words_in(std::string_view text, IsOfWord is_of_word) {
  std::vector<std::string> words;
  bool inside = false;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (!is_of_word(byte)) {
      inside = false;
      continue;
    }
    if (!std::exchange(inside, true)) words.emplace_back();
    words.back() += static_cast<char>(std::tolower(byte));
  }
  return words;
}

SplitPart part_of(const std::filesystem::path& name) {
  const std::vector<std::string> words = words_in(name.string(), std::isalpha);
  const auto says = [&](std::initializer_list<const char*> any) {
    return std::find_first_of(words.begin(), words.end(), any.begin(), any.end()) != words.end();
  };
  if (says({"train", "training"})) return SplitPart::train;
  if (says({"validation", "valid", "val", "dev", "eval", "evaluation"})) return SplitPart::validation;
  return says({"test", "testing"}) ? SplitPart::test : SplitPart::none;
}

std::string without_number(const std::string& word) {
  return word.substr(0, word.find_last_not_of("0123456789") + 1);
}

/// Whether a word only distinguishes files of one split: a number or a checksum.
bool is_of_shard(const std::string& word) {
  constexpr std::size_t kShortestHash = 16;
  constexpr std::array<std::string_view, 4> kWords = {"", "of", "part", "shard"};
  const bool hash = word.size() >= kShortestHash && word.find_first_not_of("0123456789abcdef") == std::string::npos;
  return hash || std::find(kWords.begin(), kWords.end(), without_number(word)) != kWords.end();
}

/// "train" for "train-00000-of-00002.parquet" and for "train1.jsonl".
std::string without_shard(const std::filesystem::path& component) {
  const std::string file = component.string();
  std::string out;
  for (const std::string& word : words_in(file.substr(0, file.find('.', 1)), std::isalnum)) {
    if (is_of_shard(word)) continue;
    const std::string plain = without_number(word);
    out += (out.empty() ? "" : "_") + (part_of(plain) == SplitPart::none ? word : plain);
  }
  return out;
}

/// The folder of a split, relative to the searched one, and its name.
struct SplitName {
  std::filesystem::path folder;
  std::string name;
  auto operator<=>(const SplitName&) const = default;
};

SplitName split_name_of(const std::filesystem::path& path) {
  SplitName out;
  for (const std::filesystem::path& component : path) {
    out.name = without_shard(component);
    if (part_of(component) == part_of(path)) break;
    out.folder /= component;
  }
  return out;
}

std::string listed(const Names& names) {
  constexpr std::size_t kMaxListed = 12;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMaxListed); ++i) text += (i == 0 ? "" : ", ") + names[i].string();
  return names.size() > kMaxListed ? text + ", ..." : text;
}

/// All shards of the only split of this part; fails if there are several.
Names one_split(const std::filesystem::path& folder, const Names& names) {
  constexpr std::array<std::string_view, 3> kExact = {"train", "validation", "test"};
  std::map<SplitName, Names> splits, exact;
  for (const std::filesystem::path& name : names) splits[split_name_of(name)].push_back(name);
  for (const auto& [split, files] : splits)
    if (std::find(kExact.begin(), kExact.end(), split.name) != kExact.end()) exact[split] = files;
  if (!exact.empty()) splits = exact;
  if (splits.size() == 1) return splits.begin()->second;
  Names all;
  for (const auto& [split, files] : splits) all.push_back(files.front());
  fail(ErrorKind::input, {.cause = fmt::format("{}: {}", kSeveralSplits, listed(all)),
                          .place = folder.string(),
                          .remedy = "Choose one, such as " + (folder / all.front()).string() + ", or list several."});
}

/// All files of the split with exactly this name.
Names named_split(const std::filesystem::path& folder, const Names& names, const std::string& wanted) {
  if (wanted.empty()) return {};
  const std::string name = without_shard(wanted);
  Names exact;
  for (const std::filesystem::path& file : names)
    if (split_name_of(file).name == name || file == wanted) exact.push_back(file);
  return exact.empty() ? exact : one_split(folder, exact);
}

/// The parts that a split name may refer to, if it is one of the usual names.
std::vector<SplitPart> order_of_name(const std::string& name) {
  using enum SplitPart;
  const SplitPart part = part_of(name);
  if (part == none || words_in(name, std::isalnum).size() > 1) return {};
  return part == train ? std::vector{train, none} : std::vector{part};
}

}  // namespace

Names choose_split(const std::filesystem::path& folder, const Names& names, const WantedSplit& wanted) {
  using enum SplitPart;
  if (Names named = named_split(folder, names, wanted.name); !named.empty()) return named;
  const bool trains = wanted.part == Split::train;
  std::vector<SplitPart> order = trains ? std::vector{train, none} : std::vector{validation, test, none};
  if (!wanted.name.empty()) order = order_of_name(wanted.name);
  for (const SplitPart part : order) {
    Names chosen;
    for (const std::filesystem::path& name : names)
      if (part_of(name) == part) chosen.push_back(name);
    if (!chosen.empty()) return part == none ? chosen : one_split(folder, chosen);
  }
  const std::string what = !wanted.name.empty() ? wanted.name : trains ? "train" : "evaluation";
  fail(ErrorKind::input, {.cause = "no " + what + " split in the folder; it has: " + listed(names),
                          .place = folder.string(),
                          .remedy = "Give the file or folder that you want."});
}

}  // namespace qtrain
