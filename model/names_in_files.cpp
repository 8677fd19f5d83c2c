// Names of weights in files that other programs wrote; declared in hf_folder.h.
#include "core/plural.h"
#include "model/hf_folder.h"
#include "model/module_names.h"

namespace qtrain {
namespace {

/// The end of a tensor's name in an adapter file: as PEFT's save_pretrained writes it (saved), and as it is in the
/// model's state_dict, with the adapter's name, or in files of other PEFT versions (other).
struct AdapterNameEnd {
  std::string_view saved, other;
};
constexpr AdapterNameEnd kAdapterNameEnds[] = {{".lora_A.weight", ".lora_A.default.weight"},
                                               {".lora_B.weight", ".lora_B.default.weight"},
                                               {".lora_embedding_A", ".lora_embedding_A.default"},
                                               {".lora_embedding_B", ".lora_embedding_B.default"},
                                               {".lora_magnitude_vector", ".lora_magnitude_vector.default.weight"},
                                               {".lora_magnitude_vector", ".lora_magnitude_vector.default"},
                                               {".lora_magnitude_vector", ".lora_magnitude_vector.weight"},
                                               {".weight", ".modules_to_save.default.weight"},
                                               {".bias", ".modules_to_save.default.bias"}};

std::string with_end(const std::string& name, std::size_t old, std::string_view end) {
  return name.substr(0, name.size() - old).append(end);
}

}  // namespace

std::string name_in(const SafetensorsReader& reader, const std::string& name) {
  if (!reader.contains(name) && name.starts_with("model.") && reader.contains(name.substr(6))) return name.substr(6);
  if (reader.contains(name) || !name.starts_with(kPeftPrefix)) return name;
  for (const AdapterNameEnd& e : kAdapterNameEnds)
    if (name.ends_with(e.saved) && reader.contains(with_end(name, e.saved.size(), e.other)))
      return with_end(name, e.saved.size(), e.other);
  return name;
}

std::string without_adapter_name(const std::string& name) {
  for (const AdapterNameEnd& e : kAdapterNameEnds)
    if (name.ends_with(e.other)) return with_end(name, e.other.size(), e.saved);
  return name;
}

std::string full_name(const SafetensorsReader& reader, const std::string& name) {
  return reader.contains("embed_tokens.weight") && !name.starts_with("lm_head.") ? "model." + name : name;
}

void warn_of_ignored(Log& log, const std::filesystem::path& path, const std::vector<std::string>& names) {
  if (names.empty()) return;
  log.warn("{}: ignored {}, not part of the model: {}{}", path.string(),
           counted(static_cast<std::int64_t>(names.size()), "tensor"), names.front(),
           names.size() == 1 ? "" : " and others");
}

}  // namespace qtrain
