#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/os/file.h"
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

  bool contains(const std::string& name) const { return tensors_.contains(name) || unusable_.contains(name); }
  /// A view into the mapping; throws an input error that names file and tensor if there is none. Tensors with more than
  /// 4 dimensions or with dtypes that nothing reads (F8_E5M2, U32, ...) are refused here; `tensors` omits them.
  ConstTensor at(const std::string& name) const;
  const std::map<std::string, ConstTensor>& tensors() const { return tensors_; }
  /// Releases the memory behind a tensor that has been read; it may be read again.
  void release(ConstTensor tensor) const {
    for (const MappedFile& file : files_) file.release({tensor.data, tensor.bytes()});
  }
  /// Tensors that `at` refuses, with the reason.
  const std::map<std::string, std::string>& unusable() const { return unusable_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  void read_one(const std::filesystem::path& file);
  void read_index(const std::filesystem::path& index);
  void add(const std::filesystem::path& file, const std::string& name, const struct SafetensorsEntry& entry);

  std::filesystem::path path_;
  std::vector<MappedFile> files_;
  std::vector<std::unique_ptr<std::byte[]>> copies_;  ///< of tensors that are not aligned in a file
  std::map<std::string, std::string> unusable_;       ///< tensor -> reason
  std::map<std::string, ConstTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// The files that a reader of `path` would map: one, or the shards that an index names. Throws as the reader does.
std::vector<std::filesystem::path> safetensors_files(const std::filesystem::path& path);

using NamedTensors = std::vector<std::pair<std::string, ConstTensor>>;

/// A tensor whose bytes are produced when it is written, so that a model need not fit in memory as a whole.
struct TensorSource {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  /// Hands all bytes of the tensor, or of this part, in order and in chunks of any size, to `append`.
  std::function<void(const std::function<void(std::span<const std::byte>)>& append)> produce;
  /// The elements that are produced, if not all of them.
  struct Part {
    std::int64_t begin = 0, count = 0;
  };
  std::optional<Part> part = {};
};

/// Who writes a file: this process alone, or several processes, each its own parts of the tensors. The first creates
/// the file, into which the others then write.
enum class Writers : std::uint8_t { one, first, other };

/// Writes host tensors as the safetensors library does, byte for byte: larger dtypes first, then by name, with the
/// metadata {"format":"pt"}. Errors: two tensors with the same name (internal), ErrorKind::disk.
void write_safetensors(const std::filesystem::path& file, const NamedTensors& tensors);
void write_safetensors(const std::filesystem::path& file, const std::vector<TensorSource>& tensors,
                       Writers writers = Writers::one);

/// The default of transformers' save_pretrained.
inline constexpr std::uint64_t kDefaultShardBytes = 50'000'000'000;

/// Writes model.safetensors, or model-0000i-of-0000N.safetensors with an index when the total exceeds shard_bytes
/// (a shard begins before the tensor that would exceed it, as huggingface_hub splits). Removes weight files of an
/// earlier model from the folder.
void write_sharded(const std::filesystem::path& folder, const NamedTensors& tensors,
                   std::uint64_t shard_bytes = kDefaultShardBytes);
void write_sharded(const std::filesystem::path& folder, const std::vector<TensorSource>& tensors,
                   std::uint64_t shard_bytes = kDefaultShardBytes, Writers writers = Writers::one);

/// Removes a model's weight files that are not in `names`, unless `names` has no weight file.
void remove_other_weights(const std::filesystem::path& folder, const std::set<std::string>& names);

}  // namespace qtrain
