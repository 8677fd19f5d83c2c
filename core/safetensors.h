#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/file.h"
#include "core/tensor.h"

namespace qtrain {

/// The tensors of a safetensors file, of a sharded set (…index.json), or of a folder that holds either, mapped.
/// Hostile files are expected: header at most 100,000,000 bytes, ranges without gap or overlap up to the end of the
/// file, known dtypes, sizes that fit their shapes, shard names of one path component. ErrorKind::input otherwise.
class SafetensorsReader {
 public:
  /// `path`: a .safetensors file, an index, or a folder (model.safetensors, model.safetensors.index.json or
  /// adapter_model.safetensors). A folder with only .bin / .pt files is refused with the reason.
  explicit SafetensorsReader(const std::filesystem::path& path);

  bool contains(const std::string& name) const { return tensors_.contains(name); }
  /// View into the mapping; an input error naming file and tensor when absent. Rank above 4 is refused on use.
  ConstTensor at(const std::string& name) const;
  const std::map<std::string, ConstTensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  void read_one(const std::filesystem::path& file);

  std::filesystem::path path_;
  std::vector<MappedFile> files_;
  std::map<std::string, ConstTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

using NamedTensors = std::vector<std::pair<std::string, ConstTensor>>;

/// Writes host tensors, sorted as the safetensors library does (dtype size descending, then name), `{"format":"pt"}`.
void write_safetensors(const std::filesystem::path& file, const NamedTensors& tensors);

/// Writes model.safetensors, or model-0000i-of-0000N.safetensors with an index when the total exceeds shard_bytes
/// (a shard begins before the tensor that would exceed it, as huggingface_hub splits).
void write_sharded(const std::filesystem::path& folder, const NamedTensors& tensors,
                   std::uint64_t shard_bytes = 50'000'000'000);

}  // namespace qtrain
