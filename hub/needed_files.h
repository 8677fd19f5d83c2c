#pragma once
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "hub/hub_api.h"

namespace qtrain {

/// Those files of a model repository that `files` are about: config.json and the index, tokenizer and templates,
/// weights as safetensors, or the one GGUF file that the name selects. Throws ErrorKind::input if the repository has no
/// such file, or only weights of another kind. `parts` are the files that the index of the weights names; without them,
/// the names of files tell which have weights. Throws ErrorKind::input, too, if the repository lacks one of them.
std::vector<RepoFile> needed_files(const RepoListing& listing, const HubName& name, ModelFiles files,
                                   const std::optional<std::set<std::string>>& parts = {});

/// The index that says which files have the weights; null if the repository has none, or has the weights in one file.
const RepoFile* needed_index(const RepoListing& listing, const HubName& name, ModelFiles files);
/// The files that the index in a snapshot names; none if there is no index, or it cannot be read.
std::optional<std::set<std::string>> parts_in_index(const std::filesystem::path& snapshot);

/// Whether a snapshot has what `files` are about, as far as its files tell: files that not every model has may be
/// missing. Only for a snapshot without a list of the repository's files.
bool has_needed_files(const std::filesystem::path& snapshot, ModelFiles files);

/// Whether each file that is one of several ("train-00000-of-00002.parquet") has all others next to it.
bool has_all_shards(const std::filesystem::path& snapshot);

}  // namespace qtrain
