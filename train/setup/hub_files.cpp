#include "train/setup/hub_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <system_error>

#include "config/hub_names.h"
#include "core/os/paths.h"
#include "core/os/temporary_folder.h"
#include "data/source/files.h"
#include "data/source/row_source.h"
#include "train/setup/dataset_setup.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

/// Files that say which others belong to a split.
constexpr std::array<std::string_view, 4> kAboutData = {"README.md", "dataset_dict.json", "state.json",
                                                        "dataset_info.json"};

bool is_about_data(const fs::path& path) {
  const std::string name = path.filename().string();
  return name == "README.md" ? !path.has_parent_path() : std::ranges::find(kAboutData, name) != kAboutData.end();
}

/// A folder with the names of a data set's files, which are empty: the code that reads a folder chooses among them.
class ListedDataset {
 public:
  ListedDataset(HubFetcher& fetcher, const HubName& name, RepoListing listing, const fs::path& folder)
      : name_(name), listing_(std::move(listing)), folder_(folder) {
    write_tree(fetcher.cache(), name_, listing_);
    std::vector<RepoFile> about;
    for (const RepoFile& file : listing_.files)
      if (is_about_data(file.path)) about.push_back(file);
    fetcher.download(name_, listing_, about);
    for (const RepoFile& file : listing_.files) {
      const fs::path path = folder_ / file.path;
      const bool is_about = is_about_data(file.path);
      if (!is_about && !is_data_file(path) && !is_text_file(path)) continue;
      create_folders(path.parent_path());
      std::error_code ignored;
      if (is_about)
        fs::create_symlink(fetcher.cache().snapshot_folder(name_, listing_.commit) / file.path, path, ignored);
      else
        std::ofstream(path).flush();
    }
  }

  const HubName& name() const { return name_; }
  const fs::path& folder() const { return folder_; }
  /// What the name selects: the folder, or files in it.
  fs::path path(const std::string& file) const { return file.empty() ? folder_ : folder_ / file; }

  void need(const fs::path& path) {
    const std::string file = path.lexically_relative(folder_).string();
    if (!file.empty() && !file.starts_with("..")) needed_.insert(file);
  }

  void fetch(HubFetcher& fetcher) const {
    std::vector<RepoFile> files;
    for (const RepoFile& file : listing_.files)
      if (needed_.contains(file.path) || is_about_data(file.path)) files.push_back(file);
    fetcher.fetch(name_, listing_, files);
  }

 private:
  HubName name_;
  RepoListing listing_;
  fs::path folder_;
  std::set<std::string> needed_;
};

/// The data sets of a config that are on the hub.
class NamedDatasets {
 public:
  NamedDatasets(HubFetcher& fetcher, const ResolvedConfig& config)
      : fetcher_(fetcher), config_(config), listed_(fs::temp_directory_path(), "qtrain-hub-", "set TMPDIR") {}

  void fetch() {
    Config listed = config_.value;
    change_datasets(listed, [&](const DatasetText& given) { return listed_path(given); });
    if (datasets_.empty()) return;
    for (const Split split : {Split::train, Split::evaluation})
      for (const auto& files : files_of(listed.data, split))
        for (const fs::path& file : files)
          for (auto& [key, dataset] : datasets_) dataset.need(file);
    for (const auto& [key, dataset] : datasets_) dataset.fetch(fetcher_);
  }

 private:
  /// The path among the listed files, or the text itself if it is a path, or its snapshot was not made from a list.
  std::string listed_path(const DatasetText& given) {
    for (const NamedOnHub& named : config_.hub_names)
      if (named.name.kind == RepoKind::dataset && named.place && named.place->path == given.text) {
        const auto known = read_tree(fetcher_.cache(), named.name, named.place->commit);
        const fs::path snapshot = fetcher_.cache().snapshot_folder(named.name, named.place->commit);
        if (!known && has_all_shards(snapshot)) return given.text;
        return dataset_of(named.name, known).path(named.name.file).string();
      }
    const auto name = hub_name_unless_path(RepoKind::dataset, given.text);
    if (!name || !name->has_owner()) return given.text;
    return dataset_of(*name, {}).path(name->file).string();
  }

  ListedDataset& dataset_of(const HubName& name, const std::optional<RepoListing>& known) {
    HubName repo = name;
    repo.file.clear();
    const auto at = datasets_.find(repo.text());
    if (at != datasets_.end()) return at->second;
    const fs::path folder = listed_.path() / fmt::format("{}-", datasets_.size());
    create_folders(folder);
    return datasets_.try_emplace(repo.text(), fetcher_, repo, known ? *known : fetcher_.list(repo), folder)
        .first->second;
  }

  /// Messages name the data set, not the folder of the list.
  SourceFiles files_of(const DataSection& data, Split split) {
    try {
      return data_files(data, split);
    } catch (const Error& e) {
      ErrorText text = e.text();
      for (const auto& [key, dataset] : datasets_)
        for (std::string* part : {&text.cause, &text.place, &text.remedy})
          for (std::size_t at = 0; (at = part->find(dataset.folder().string(), at)) != part->npos; at += key.size())
            part->replace(at, dataset.folder().string().size(), key);
      fail(e.kind(), std::move(text));
    }
  }

  HubFetcher& fetcher_;
  const ResolvedConfig& config_;
  TemporaryFolder listed_;
  std::map<std::string, ListedDataset> datasets_;
};

}  // namespace

void fetch_named(HubFetcher& fetcher, const ResolvedConfig& config, const NeededOfConfig& needed) {
  for (const NamedOnHub& named : config.hub_names)
    if (named.name.kind == RepoKind::model && needed.model != ModelFiles::none)
      fetch_model(fetcher, named.name, named.key == "tokenizer_name_or_path" ? ModelFiles::text : needed.model);
  if (needed.rows) NamedDatasets(fetcher, config).fetch();
}

}  // namespace qtrain
