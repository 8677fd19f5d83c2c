#include "core/formats/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>

#include "core/formats/json.h"
#include "core/formats/safetensors_dtypes.h"
#include "core/formats/weight_files.h"

namespace qtrain {

/// One tensor of a header, checked on its own but not yet against its neighbors.
struct SafetensorsEntry {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  ///< in bytes of the data section
  std::span<const std::byte> bytes;
};

namespace {

constexpr std::uint64_t kMaxHeader = 100'000'000;
constexpr std::uint64_t kMaxHeaderValues =
    3'000'000;  // about 300,000 tensors; limits the memory that a hostile header can take

[[noreturn]] void fail_file(const std::filesystem::path& file, std::string cause) {
  fail(ErrorKind::input, {.cause = std::move(cause),
                          .place = file.string(),
                          .remedy = "the file is damaged or incomplete: fetch or write it again"});
}

/// A non-negative integer that fits an int64, or nothing.
std::optional<std::uint64_t> as_size(const Json& value) {
  if (!value.is_number_unsigned()) return {};
  const auto v = value.get<std::uint64_t>();
  if (v > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return {};
  return v;
}

/// Bytes of a tensor, unless they overflow or do not fill whole bytes.
std::optional<std::uint64_t> byte_count(const SafetensorsEntry& entry, std::uint64_t bits) {
  std::uint64_t total = bits;
  for (const auto extent : entry.shape)
    if (__builtin_mul_overflow(total, static_cast<std::uint64_t>(extent), &total)) return {};
  if (total % 8 != 0) return {};
  return total / 8;
}

SafetensorsEntry parse_entry(const std::filesystem::path& file, const std::string& name, const Json& json) {
  const auto bad = [&](std::string_view what) { fail_file(file, fmt::format("tensor \"{}\": {}", name, what)); };
  if (!json.is_object()) bad("its entry in the header is not an object");
  const auto dtype = json.find("dtype"), shape = json.find("shape"), offsets = json.find("data_offsets");
  if (dtype == json.end() || !dtype->is_string()) bad("has no dtype");
  if (shape == json.end() || !shape->is_array()) bad("has no shape");
  if (offsets == json.end() || !offsets->is_array() || offsets->size() != 2) bad("has no data_offsets");
  SafetensorsEntry entry{.dtype = dtype->get<std::string>()};
  for (const auto& extent : *shape) {
    const auto size = as_size(extent);
    if (!size) bad("its shape holds something that is not a size");
    entry.shape.push_back(static_cast<std::int64_t>(*size));
  }
  const auto begin = as_size((*offsets)[0]), end = as_size((*offsets)[1]);
  if (!begin || !end || *begin > *end) bad("its data_offsets are not a range");
  entry.begin = *begin;
  entry.end = *end;
  const auto* known = file_dtype(entry.dtype);
  if (known == nullptr) bad(fmt::format("unknown dtype \"{}\"", entry.dtype));
  const auto bytes = byte_count(entry, known->bits);
  if (!bytes || *bytes != entry.end - entry.begin)
    bad(fmt::format("{} of shape [{}] does not fit its {} bytes", entry.dtype, fmt::join(entry.shape, ", "),
                    entry.end - entry.begin));
  return entry;
}

using Entries = std::vector<std::pair<std::string, SafetensorsEntry>>;

/// Tensors must tile the data section: begin at 0, without gap or overlap, to the end of the file.
void check_tiling(const std::filesystem::path& file, const Entries& entries, std::uint64_t data_bytes) {
  std::vector<const std::pair<std::string, SafetensorsEntry>*> order;
  for (const auto& e : entries) order.push_back(&e);
  std::sort(order.begin(), order.end(), [](auto* a, auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  std::uint64_t at = 0;
  for (const auto* e : order) {
    if (e->second.begin != at)
      fail_file(file, fmt::format("tensor \"{}\" begins at byte {} of the data where {} was expected: a gap or overlap",
                                  e->first, e->second.begin, at));
    at = e->second.end;
  }
  if (at != data_bytes)
    fail_file(file, fmt::format("its tensors take {} bytes, but {} follow the header", at, data_bytes));
}

std::map<std::string, std::string> parse_metadata(const std::filesystem::path& file, const Json& json) {
  std::map<std::string, std::string> metadata;
  if (json.is_null()) return metadata;
  if (!json.is_object()) fail_file(file, "__metadata__ is not an object");
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) fail_file(file, fmt::format("__metadata__ entry \"{}\" is not a string", key));
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

/// The header's text; its length field is checked against the file first.
std::string_view header_of(const std::filesystem::path& file, std::span<const std::byte> bytes) {
  if (is_lfs_pointer({reinterpret_cast<const char*>(bytes.data()), bytes.size()})) fail_lfs_pointer(file);
  if (bytes.size() < 8) fail_file(file, fmt::format("{} bytes are too few for a safetensors file", bytes.size()));
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i)
    length = length << 8 | std::to_integer<std::uint64_t>(bytes[static_cast<std::size_t>(i)]);
  if (length > kMaxHeader) fail_file(file, fmt::format("its header length, {}, is above {}", length, kMaxHeader));
  if (length > bytes.size() - 8)
    fail_file(file, fmt::format("its header length, {}, is more than the file holds", length));
  return {reinterpret_cast<const char*>(bytes.data()) + 8, static_cast<std::size_t>(length)};
}

/// The folder in which a model folder's shards must be: itself or, for a snapshot of a Hugging Face cache (whose files
/// are links into ../../blobs), the cache entry that it belongs to.
std::filesystem::path shard_root(const std::filesystem::path& folder) {
  const auto real = std::filesystem::weakly_canonical(folder);
  return real.parent_path().filename() == "snapshots" ? real.parent_path().parent_path() : real;
}

std::filesystem::path shard_path(const std::filesystem::path& index, const std::string& name) {
  const bool plain = !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
                     name.find('\\') == std::string::npos && name.find('\0') == std::string::npos;
  if (!plain) fail_file(index, fmt::format("shard name \"{}\" is not a plain file name", name));
  const auto folder = index.has_parent_path() ? index.parent_path() : std::filesystem::path(".");
  auto file = folder / name;
  const auto root = shard_root(folder);
  std::error_code error;
  const auto real = std::filesystem::canonical(file, error);
  if (error)
    fail(ErrorKind::input, {.cause = fmt::format("shard \"{}\" is missing or unreadable: {}", name, error.message()),
                            .place = index.string(),
                            .remedy = "fetch it: a download may be incomplete"});
  const auto [end, ignored] = std::mismatch(root.begin(), root.end(), real.begin(), real.end());
  if (end != root.end())
    fail(ErrorKind::input, {.cause = fmt::format("shard \"{}\" is a link out of the model folder", name),
                            .place = index.string(),
                            .remedy = "replace the link with the file itself"});
  return file;
}

/// The tensors of each shard of an index.
std::map<std::string, std::set<std::string>> shards_of(const std::filesystem::path& index) {
  const auto json = read_json(index);
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object()) fail_file(index, "has no weight_map");
  std::map<std::string, std::set<std::string>> shards;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string()) fail_file(index, fmt::format("weight_map entry \"{}\" is not a file name", tensor));
    shards[shard.get<std::string>()].insert(tensor);
  }
  return shards;
}

std::filesystem::path file_or_index(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) ? weights_in(path) : path;
}

}  // namespace

std::vector<std::filesystem::path> safetensors_files(const std::filesystem::path& path) {
  const auto file = file_or_index(path);
  if (file.extension() != ".json") return {file};
  std::vector<std::filesystem::path> files;
  for (const auto& [shard, tensors] : shards_of(file)) files.push_back(shard_path(file, shard));
  return files;
}

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path) {
  path_ = file_or_index(path);
  if (path_.extension() == ".json") {
    read_index(path_);
  } else {
    read_one(path_);
  }
}

void SafetensorsReader::read_index(const std::filesystem::path& index) {
  for (const auto& [shard, names] : shards_of(index)) {
    for (const auto& name : names)
      if (contains(name)) fail_file(index, fmt::format("tensor \"{}\" is in two shards", name));
    read_one(shard_path(index, shard));
    for (const auto& name : names)
      if (!contains(name))
        fail_file(index, fmt::format("tensor \"{}\" is not in \"{}\", although the index says so", name, shard));
  }
}

void SafetensorsReader::read_one(const std::filesystem::path& file) {
  const auto bytes = files_.emplace_back(file).bytes();
  const auto header = header_of(file, bytes);
  const auto data = bytes.subspan(8 + header.size());
  const auto json = parse_json(header, file.string() + " (header)", {.max_values = kMaxHeaderValues});
  if (!json.is_object()) fail_file(file, "its header is not a JSON object");
  Entries entries;
  for (const auto& [name, value] : json.items()) {
    if (name == "__metadata__") {
      metadata_.merge(parse_metadata(file, value));
    } else {
      entries.emplace_back(name, parse_entry(file, name, value));
    }
  }
  check_tiling(file, entries, data.size());
  for (auto& [name, entry] : entries) {
    entry.bytes = data.subspan(entry.begin, entry.end - entry.begin);
    add(file, name, entry);
  }
}

void SafetensorsReader::add(const std::filesystem::path& file, const std::string& name, const SafetensorsEntry& entry) {
  if (contains(name)) fail_file(file, fmt::format("tensor \"{}\" is also in another shard", name));
  const auto dtype = file_dtype(entry.dtype)->ours;
  if (!dtype || entry.shape.size() > 4) {
    unusable_[name] = dtype ? fmt::format("has {} dimensions, more than the 4 supported", entry.shape.size())
                            : fmt::format("has dtype {}, which is not supported", entry.dtype);
    return;
  }
  ConstTensor view{.data = entry.bytes.data(), .dtype = *dtype};
  for (const auto extent : entry.shape) view.shape.dims[static_cast<std::size_t>(view.shape.rank++)] = extent;
  if (reinterpret_cast<std::uintptr_t>(view.data) % size_of(*dtype) != 0) {
    auto& copy = copies_.emplace_back(std::make_unique_for_overwrite<std::byte[]>(entry.bytes.size()));
    std::memcpy(copy.get(), entry.bytes.data(), entry.bytes.size());
    view.data = copy.get();
  }
  tensors_.emplace(name, view);
}

ConstTensor SafetensorsReader::at(const std::string& name) const {
  if (const auto found = tensors_.find(name); found != tensors_.end()) return found->second;
  if (const auto found = unusable_.find(name); found != unusable_.end())
    fail(ErrorKind::input, {.cause = fmt::format("tensor \"{}\" {}", name, found->second), .place = path_.string()});
  fail(ErrorKind::input, {.cause = fmt::format("has no tensor \"{}\"", name),
                          .place = path_.string(),
                          .remedy = "check that these are the weights of the model that config.json describes"});
}

}  // namespace qtrain
