#include "train/setup/hub_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <system_error>

#include "config/hub_names.h"
#include "core/os/orderly_stop.h"
#include "core/os/paths.h"
#include "core/os/stop.h"
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

/// What every path begins with that a path or glob selects.
std::string fixed_prefix(const std::string& file) {
  return file.substr(0, file.find_first_of("*?["));
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
    for (const RepoFile& file : about)
      lay_out(file.path, [&](const fs::path& path) {
        std::error_code error;
        fs::create_symlink(absolute_path(fetcher.cache().snapshot_folder(name_, listing_.commit)) / file.path, path,
                           error);
        return !error;
      });
  }

  /// Lays out the files that a path or glob may select, or all. Each takes time on some file systems.
  void show(const std::string& selected) {
    const std::string prefix = fixed_prefix(selected);
    for (const RepoFile& file : listing_.files) {
      const fs::path path(file.path);
      if (!file.path.starts_with(prefix) || is_about_data(path) || !(is_data_file(path) || is_text_file(path)))
        continue;
      throw_if_stopped();
      if (shown_.insert(file.path).second)
        lay_out(path, [](const fs::path& place) { return std::ofstream(place).good(); });
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
  void lay_out(const fs::path& file, const std::function<bool(const fs::path&)>& create) {
    const fs::path path = folder_ / file;
    if (folders_.insert(path.parent_path()).second) create_folders(path.parent_path());
    if (!create(path))
      fail(ErrorKind::disk, {.cause = "the file cannot be created", .place = path.string(), .remedy = "set TMPDIR"});
  }

  HubName name_;
  RepoListing listing_;
  fs::path folder_;
  std::set<std::string> needed_, shown_;
  std::set<fs::path> folders_;
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
  /// The path among the listed files, or the text itself if it is a path, or nothing says which files there are.
  std::string listed_path(const DatasetText& given) {
    for (const NamedOnHub& named : config_.hub_names)
      if (named.name.kind == RepoKind::dataset && named.place && named.place->path == given.text) {
        const auto known = list_of(named);
        return known ? shown_path(named.name, *known) : given.text;
      }
    const auto name = hub_name_unless_path(RepoKind::dataset, given.text);
    if (!name || !name->has_owner()) return given.text;
    return shown_path(*name, {});
  }

  /// The files of a snapshot's commit; none if neither the cache nor the hub has a list, and none is known to be
  /// missing.
  std::optional<RepoListing> list_of(const NamedOnHub& named) {
    if (auto known = read_tree(fetcher_.cache(), named.name, named.place->commit)) return known;
    const fs::path snapshot = fetcher_.cache().snapshot_folder(named.name, named.place->commit);
    HubName at = named.name;
    if (!fetcher_.offline()) at.revision = named.place->commit;
    std::string cause = "HF_HUB_OFFLINE forbids asking the hub";
    try {
      if (!fetcher_.offline() || !has_all_shards(snapshot)) return fetcher_.list(at);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::input || !has_all_shards(snapshot)) throw;
      cause = e.text().cause;
    }
    if (warned_.insert(snapshot).second)
      fetcher_.log().warn("{}: the files in {} are used without knowing whether all are there ({})", named.name.text(),
                          snapshot.string(), cause);
    return {};
  }

  std::string shown_path(const HubName& name, const std::optional<RepoListing>& known) {
    ListedDataset& dataset = dataset_of(name, known);
    dataset.show(name.file);
    return dataset.path(name.file).string();
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
  std::set<fs::path> warned_;
};

}  // namespace

void fetch_named(HubFetcher& fetcher, const ResolvedConfig& config, const NeededOfConfig& needed) {
  for (const NamedOnHub& named : config.hub_names)
    if (named.name.kind == RepoKind::model && needed.model != ModelFiles::none)
      fetch_model(fetcher, named.name, named.key == "tokenizer_name_or_path" ? ModelFiles::text : needed.model);
  if (needed.rows) stop_in_order([&] { NamedDatasets(fetcher, config).fetch(); });
}

}  // namespace qtrain
