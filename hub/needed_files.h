#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "hub/hub_api.h"

namespace qtrain {

/// Those files of a model repository that `files` are about: config.json and the index, tokenizer and templates,
/// weights as safetensors, or the one GGUF file that the name selects. Throws ErrorKind::input if the repository has no
/// such file, or only weights of another kind.
std::vector<RepoFile> needed_files(const RepoListing& listing, const HubName& name, ModelFiles files);

/// Whether a snapshot has what `files` are about, as far as its files tell.
bool has_needed_files(const std::filesystem::path& snapshot, ModelFiles files);

/// Whether each file that is one of several ("train-00000-of-00002.parquet") has all others next to it.
bool has_all_shards(const std::filesystem::path& snapshot);

}  // namespace qtrain
