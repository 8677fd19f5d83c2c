#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/formats/json.h"
#include "core/formats/safetensors.h"
#include "core/formats/safetensors_dtypes.h"
#include "core/formats/weight_files.h"

namespace qtrain {
namespace {

std::vector<TensorSource> sources_of(const NamedTensors& tensors) {
  std::vector<TensorSource> sources;
  for (const auto& [name, tensor] : tensors) {
    check(tensor.device.kind == DeviceKind::cpu, "only host tensors can be written");
    check(tensor.data != nullptr || tensor.numel() == 0, "a tensor without storage cannot be written");
    const std::span bytes(tensor.data, tensor.bytes());
    sources.push_back({name, tensor.dtype, tensor.shape, [bytes](const auto& append) { append(bytes); }, {}});
  }
  return sources;
}

std::uint64_t bytes_of(const TensorSource& t) {
  return static_cast<std::uint64_t>(t.shape.numel()) * size_of(t.dtype);
}

/// The header with its length in front, padded with spaces to a multiple of 8 bytes.
std::string header_for(const std::vector<const TensorSource*>& order) {
  std::string text = R"({"__metadata__":{"format":"pt"})";
  std::uint64_t at = 0;
  for (const auto* t : order) {
    const auto dims = std::span(t->shape.dims).first(static_cast<std::size_t>(t->shape.rank));
    text += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", dump_json(t->name),
                        file_dtype(t->dtype).name, fmt::join(dims, ","), at, at + bytes_of(*t));
    at += bytes_of(*t);
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string length(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
  return length + text;
}

void sort_for_file(std::vector<const TensorSource*>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](auto* a, auto* b) {
    const auto *da = &file_dtype(a->dtype), *db = &file_dtype(b->dtype);
    return da != db ? da > db : a->name < b->name;
  });
  for (std::size_t i = 1; i < tensors.size(); ++i)
    check(tensors[i - 1]->name != tensors[i]->name, "two tensors have the same name");
}

// Passes on the bytes of a source and checks their number.
void produce(const TensorSource& t, const std::function<void(std::span<const std::byte>)>& append) {
  std::uint64_t written = 0;
  t.produce([&](std::span<const std::byte> bytes) {
    written += bytes.size();
    append(bytes);
  });
  check(written == (t.part ? static_cast<std::uint64_t>(t.part->count) * size_of(t.dtype) : bytes_of(t)),
        "a tensor source produced the wrong number of bytes for its shape");
}

void write_alone(const std::filesystem::path& file, const std::vector<const TensorSource*>& order,
                 const std::string& header) {
  write_file(file, [&](const std::function<void(std::span<const std::byte>)>& append) {
    append(std::as_bytes(std::span(header)));
    for (const auto* t : order) {
      check(!t->part || t->part->count == t->shape.numel(), "a single writer must write whole tensors");
      produce(*t, append);
    }
  });
}

void write_own_parts(const std::filesystem::path& file, const std::vector<const TensorSource*>& order,
                     const std::string& header, Writers writers) {
  std::uint64_t begin = header.size(), size = begin;
  for (const auto* t : order) size += bytes_of(*t);
  SharedFile out(file, writers == Writers::first ? std::optional(size) : std::nullopt);
  if (writers == Writers::first) out.write(0, std::as_bytes(std::span(header)));
  for (const auto* t : order) {
    std::uint64_t at = begin + (t->part ? static_cast<std::uint64_t>(t->part->begin) * size_of(t->dtype) : 0);
    produce(*t, [&](std::span<const std::byte> bytes) {
      out.write(at, bytes);
      at += bytes.size();
    });
    begin += bytes_of(*t);
  }
  out.sync();
}

void write_in_order(const std::filesystem::path& file, std::vector<const TensorSource*> order, Writers writers) {
  sort_for_file(order);
  const auto header = header_for(order);
  writers == Writers::one ? write_alone(file, order, header) : write_own_parts(file, order, header, writers);
}

using Shards = std::vector<std::vector<const TensorSource*>>;

/// Splits like huggingface_hub: keeps the order of tensors; one that is larger than a shard gets its own.
Shards split(const std::vector<TensorSource>& tensors, std::uint64_t shard_bytes) {
  Shards shards;
  std::vector<const TensorSource*> current;
  std::uint64_t size = 0;
  for (const auto& t : tensors) {
    const auto bytes = bytes_of(t);
    if (bytes > shard_bytes) {
      shards.push_back({&t});
      continue;
    }
    if (size + bytes > shard_bytes) {
      shards.push_back(std::exchange(current, {}));
      size = 0;
    }
    current.push_back(&t);
    size += bytes;
  }
  if (!current.empty() || shards.empty()) shards.push_back(current);
  return shards;
}

void write_index(const std::filesystem::path& file, const std::map<std::string, std::string>& weight_map,
                 std::uint64_t total) {
  Json json;
  json["metadata"]["total_size"] = total;
  Json::object_t map;  // filled without look-ups, which are linear in an ordered object
  for (const auto& [name, shard] : weight_map) map.emplace_back(name, shard);
  json["weight_map"] = std::move(map);
  write_file(file, dump_json(json, 2) + "\n");
}

}  // namespace

void write_safetensors(const std::filesystem::path& file, const std::vector<TensorSource>& tensors, Writers writers) {
  std::vector<const TensorSource*> order;
  order.reserve(tensors.size());
  for (const auto& t : tensors) order.push_back(&t);
  write_in_order(file, std::move(order), writers);
}

void write_safetensors(const std::filesystem::path& file, const NamedTensors& tensors) {
  write_safetensors(file, sources_of(tensors));
}

void write_sharded(const std::filesystem::path& folder, const std::vector<TensorSource>& tensors,
                   std::uint64_t shard_bytes, Writers writers) {
  const auto shards = split(tensors, shard_bytes);
  std::set<std::string> written;
  std::map<std::string, std::string> weight_map;
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const auto name = shards.size() == 1 ? std::string("model.safetensors")
                                         : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    write_in_order(folder / name, shards[i], writers);
    written.insert(name);
    for (const auto* t : shards[i]) {
      weight_map[t->name] = name;
      total += bytes_of(*t);
    }
  }
  if (writers == Writers::other) return;
  if (shards.size() > 1) {
    write_index(folder / "model.safetensors.index.json", weight_map, total);
    written.insert("model.safetensors.index.json");
  }
  remove_other_weights(folder, written);
}

void write_sharded(const std::filesystem::path& folder, const NamedTensors& tensors, std::uint64_t shard_bytes) {
  write_sharded(folder, sources_of(tensors), shard_bytes);
}

void remove_other_weights(const std::filesystem::path& folder, const std::set<std::string>& names) {
  if (std::ranges::none_of(names, is_weight_file)) return;
  std::vector<std::filesystem::path> stale;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const auto name = entry.path().filename().string();
    if (is_weight_file(name) && !names.contains(name)) stale.push_back(entry.path());
  }
  for (const auto& file : stale)
    if (!std::filesystem::remove(file, error))
      fail(ErrorKind::disk, {.cause = "the old file cannot be removed: " + error.message(), .place = file.string()});
}

}  // namespace qtrain
