#include "config/dataset_card.h"

#include <fmt/format.h>

#include <system_error>
#include <utility>
#include <vector>

#include "config/yaml.h"
#include "core/os/file.h"
#include "core/utf8.h"
#include "hub/name.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

/// The lines of the front matter that belong to its key `configs`: other keys, such as dataset_info, can be long.
std::string configs_part(std::string_view card) {
  std::string part;
  bool begun = false, inside = false;
  for (std::size_t begin = 0; begin < card.size();) {
    const std::size_t end = std::min(card.find('\n', begin), card.size());
    std::string_view line = card.substr(begin, end - begin);
    begin = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!std::exchange(begun, true)) {
      if (line != "---") return {};
      continue;
    }
    if (line == "---") return part;
    const bool is_key = !line.empty() && line[0] != ' ' && line[0] != '-' && line[0] != '#';
    if (is_key) inside = line.starts_with("configs:");
    if (inside) part.append(line).append("\n");
  }
  return {};
}

std::vector<std::string> texts_in(const Json& value) {
  std::vector<std::string> texts;
  if (value.is_string()) texts.push_back(value.get<std::string>());
  if (value.is_array())
    for (const Json& one : value)
      if (one.is_string()) texts.push_back(one.get<std::string>());
  return texts;
}

void add_split(CardSplits& splits, const std::string& name, const Json& paths) {
  CardSplit split{.name = name.empty() ? "train" : name, .files = {}};
  for (std::string& path : texts_in(paths))
    if (is_safe_path(path)) split.files.push_back(std::move(path));
  if (!split.files.empty()) splits.push_back(std::move(split));
}

std::string text_member(const Json& object, const char* member) {
  const auto it = object.find(member);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

DatasetCard card_of(const Json& config) {
  DatasetCard card;
  if (const std::string folder = text_member(config, "data_dir"); is_safe_path(folder)) card.folder = folder;
  const Json files = config.value("data_files", Json());
  Json plain = files.is_string() ? files : Json::array();
  if (files.is_array())
    for (const Json& one : files) {
      if (one.is_object())
        add_split(card.splits, text_member(one, "split"), one.value("path", Json()));
      else
        plain.push_back(one);
    }
  if (files.is_object())
    for (const auto& [split, paths] : files.items()) add_split(card.splits, split, paths);
  add_split(card.splits, "train", plain);
  return card;
}

/// The position of the wanted config in the list.
std::optional<std::size_t> choose_config(const std::vector<std::pair<std::string, const Json*>>& configs,
                                         const std::optional<std::string>& wanted) {
  for (std::size_t i = 0; i < configs.size(); ++i)
    if (configs[i].first == wanted.value_or("default")) return i;
  if (wanted) return {};
  for (std::size_t i = 0; i < configs.size(); ++i)
    if (configs[i].second->value("default", Json()) == true) return i;
  return configs.size() == 1 ? std::optional<std::size_t>(0) : std::nullopt;
}

/// Their names, which anybody can have chosen.
std::string listed(const std::vector<std::pair<std::string, const Json*>>& configs) {
  constexpr std::size_t kMaxShown = 1000, kMaxName = 100;
  std::string text;
  for (const auto& [name, unused] : configs) {
    if (text.size() > kMaxShown) return text + ", ...";
    text += (text.empty() ? "" : ", ") +
            (name.size() <= kMaxName ? one_line(name) : one_line(name.substr(0, kMaxName)) + "...");
  }
  return text;
}

bool is_usual_config(const std::optional<std::string>& config) {
  return !config || *config == "default" || *config == "main";
}

std::string card_text(const fs::path& folder) {
  constexpr std::uint64_t kMaxBytes = 1u << 26;
  std::error_code ignored;
  const fs::path file = folder / "README.md";
  return fs::is_regular_file(file, ignored) ? read_text(file, kMaxBytes) : "";
}

std::optional<DatasetCard> card_in(const fs::path& folder, const std::optional<std::string>& config) {
  try {
    return read_dataset_card(card_text(folder), config);
  } catch (const Error& e) {  // adds the folder
    fail(e.kind(), {.cause = e.text().cause, .place = folder.string(), .remedy = e.text().remedy});
  }
}

}  // namespace

std::optional<DatasetCard> read_dataset_card(std::string_view card, const std::optional<std::string>& config) {
  const std::string part = configs_part(card);
  if (part.empty()) return {};
  Json document;
  try {
    document = parse_yaml(part, "README.md").value;
  } catch (const Error&) {  // a card is for people: without one, the names of files decide
    if (is_usual_config(config)) return {};
    throw;
  }
  std::vector<std::pair<std::string, const Json*>> configs;
  const Json list = document.is_object() ? document.value("configs", Json()) : Json();
  if (list.is_array())
    for (const Json& one : list)
      if (one.is_object()) configs.emplace_back(text_member(one, "config_name"), &one);
  if (configs.empty()) return {};
  if (const auto chosen = choose_config(configs, config)) {
    DatasetCard card = card_of(*configs[*chosen].second);
    card.only_config = configs.size() == 1;
    return card;
  }
  if (config && is_usual_config(config) && configs.size() == 1) return card_of(*configs[0].second);
  fail(ErrorKind::usage,
       {.cause = fmt::format("the data set has {}, but its configs are {}",
                             config ? fmt::format("no config \"{}\"", *config) : "no default config", listed(configs)),
        .remedy = "name one of them: dataset_config, or `name` in an entry of a list of data sets"});
}

void apply_cards(DataSource& source) {
  for (std::string& entry : source.files) {
    const fs::path folder(entry);
    std::error_code ignored;
    if (!fs::is_directory(folder, ignored)) continue;
    if (const auto card = card_in(folder, source.config)) {
      if (!card->folder.empty()) entry = (folder / card->folder).string();
      if (!card->splits.empty())
        source.cards[entry] = {.splits = card->splits, .only = source.config || !card->only_config};
    } else if (source.config && is_safe_path(*source.config) && fs::is_directory(folder / *source.config, ignored)) {
      entry = (folder / *source.config).string();
    } else if (!is_usual_config(source.config)) {
      fail(ErrorKind::usage,
           {.cause = fmt::format("there is no config \"{}\"", *source.config),
            .place = folder.string(),
            .remedy = "configs are listed in README.md, or are folders; remove dataset_config to read "
                      "the files of the folder"});
    }
  }
}

}  // namespace qtrain
