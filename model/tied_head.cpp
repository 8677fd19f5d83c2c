#include "model/tied_head.h"

#include <cstring>

#include "core/error.h"
#include "core/os/paths.h"
#include "model/hf_folder.h"
#include "model/module_names.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

bool equal(ConstTensor a, ConstTensor b) {
  return a.dtype == b.dtype && a.shape == b.shape && std::memcmp(a.data, b.data, a.bytes()) == 0;
}

bool differs_in(const SafetensorsReader& reader) {
  const auto& tensors = reader.tensors();
  const auto embedding = tensors.find(name_in(reader, kEmbeddingWeight)), head = tensors.find(kHeadWeight);
  if (embedding == tensors.end() || head == tensors.end() || !is_float(head->second.dtype)) return false;
  const bool same = equal(embedding->second, head->second);
  reader.release(embedding->second);
  reader.release(head->second);
  return !same;
}

// Incomplete downloads and damaged files are refused when weights are loaded; an estimate does not need the weights.
bool holds_other_head(const fs::path& folder) {
  if (!path_exists(folder / "model.safetensors") && !path_exists(folder / "model.safetensors.index.json")) return false;
  try {
    return differs_in(SafetensorsReader(folder));
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

bool untie_by_weights(ModelConfig& config, const fs::path& folder) {
  if (!config.tie_word_embeddings || !holds_other_head(folder)) return false;
  config.tie_word_embeddings = false;
  config.json["tie_word_embeddings"] = false;
  return true;
}

void warn_of_untied(Log& log, const fs::path& folder) {
  log.warn(
      "{}: config.json says tie_word_embeddings: true, but the files hold an lm_head.weight that differs from the "
      "embedding: the two are not tied; set tie_word_embeddings to false to silence this warning",
      folder.string());
}

std::string weight_in(const SafetensorsReader& reader, const std::string& name, const ModelConfig& config) {
  const std::string found = name_in(reader, name);
  const bool is_head =
      config.tie_word_embeddings && name == kEmbeddingWeight && !reader.contains(found) && reader.contains(kHeadWeight);
  return is_head ? kHeadWeight : found;
}

}  // namespace qtrain
