#include "convert/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "core/formats/gguf.h"
#include "core/formats/safetensors.h"
#include "core/os/paths.h"
#include "model/model_source.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

/// A tensor as described in a file's header.
struct TensorFacts {
  std::string name, dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t bytes = 0;

  std::int64_t numel() const {
    std::int64_t n = 1;
    for (const auto extent : shape) n *= extent;
    return n;
  }
};

std::vector<TensorFacts> facts_of(const SafetensorsReader& reader) {
  std::vector<TensorFacts> facts;
  for (const auto& [name, t] : reader.tensors())
    facts.push_back({name, std::string(name_of(t.dtype)),
                     std::vector(t.shape.dims.begin(), t.shape.dims.begin() + t.shape.rank), t.bytes()});
  return facts;
}

std::vector<TensorFacts> facts_of(const GgufFile& file) {
  std::vector<TensorFacts> facts;
  for (const auto& [name, t] : file.tensors()) facts.push_back({name, name_of(t.type), t.shape, t.data.size()});
  return facts;
}

Json weights_json(const std::vector<TensorFacts>& facts) {
  std::int64_t parameters = 0;
  std::uint64_t bytes = 0;
  std::map<std::string, std::pair<std::int64_t, std::uint64_t>> dtypes;
  for (const auto& t : facts) {
    parameters += t.numel();
    bytes += t.bytes;
    dtypes[t.dtype].first += 1;
    dtypes[t.dtype].second += t.bytes;
  }
  Json json{{"tensors", facts.size()}, {"parameters", parameters}, {"bytes", bytes}, {"dtypes", Json::object()}};
  for (const auto& [name, of] : dtypes) json["dtypes"][name] = {{"tensors", of.first}, {"bytes", of.second}};
  return json;
}

Json tensors_json(const std::vector<TensorFacts>& facts) {
  Json list = Json::array();
  for (const auto& t : facts)
    list.push_back({{"name", t.name}, {"dtype", t.dtype}, {"shape", t.shape}, {"bytes", t.bytes}});
  return list;
}

void put_weights(Json& report, const std::vector<TensorFacts>& facts, TensorList list) {
  report["weights"] = weights_json(facts);
  if (list == TensorList::include) report["tensors"] = tensors_json(facts);
}

void put_safetensors(Json& report, const fs::path& file, TensorList list) {
  const SafetensorsReader reader(file);
  put_weights(report, facts_of(reader), list);
  for (const auto& [name, why] : reader.unusable()) report["weights"]["unsupported"][name] = why;
  for (const auto& [key, value] : reader.metadata()) report["metadata"][key] = value;
}

/// The members of `from` with these keys that exist and are not null.
Json chosen(const Json& from, std::initializer_list<const char*> keys) {
  Json json = Json::object();
  for (const auto* key : keys)
    if (const auto found = from.find(key); found != from.end() && !found->is_null()) json[key] = *found;
  return json;
}

std::optional<Json> read_object(const fs::path& file) {
  if (!path_exists(file)) return {};
  auto json = read_json(file);
  if (!json.is_object()) fail(ErrorKind::input, {.cause = "is not a JSON object", .place = file.string()});
  return json;
}

void put_model(Json& report, const fs::path& folder) {
  const auto config = read_object(folder / "config.json");
  if (!config) return;
  report["model"] =
      chosen(*config, {"architectures", "model_type", "hidden_size", "intermediate_size", "num_hidden_layers",
                       "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size",
                       "max_position_embeddings", "rope_theta", "rope_scaling", "rope_parameters", "sliding_window",
                       "tie_word_embeddings", "torch_dtype", "dtype", "quantization_config"});
}

void put_tokenizer(Json& report, const fs::path& folder) {
  Json tokenizer = Json::object();
  if (const auto json = read_object(folder / "tokenizer.json")) {
    tokenizer["file"] = "tokenizer.json";
    if (const auto model = json->find("model"); model != json->end() && model->is_object()) {
      tokenizer.update(chosen(*model, {"type"}));
      if (const auto vocab = model->find("vocab"); vocab != model->end()) tokenizer["vocab_size"] = vocab->size();
    }
    if (const auto added = json->find("added_tokens"); added != json->end()) tokenizer["added_tokens"] = added->size();
  } else if (path_exists(folder / "tokenizer.model")) {
    tokenizer["file"] = "tokenizer.model";
  }
  const auto config = read_object(folder / "tokenizer_config.json");
  if (path_exists(folder / "chat_template.jinja")) {
    tokenizer["chat_template"] = "chat_template.jinja";
  } else if (config && config->contains("chat_template")) {
    tokenizer["chat_template"] = "tokenizer_config.json";
  }
  if (!tokenizer.empty()) report["tokenizer"] = tokenizer;
}

bool put_adapter(Json& report, const fs::path& folder, TensorList list) {
  const auto config = read_object(folder / "adapter_config.json");
  if (!config) return false;
  report["adapter"] =
      chosen(*config, {"peft_type", "r", "lora_alpha", "lora_dropout", "use_rslora", "use_dora", "target_modules",
                       "modules_to_save", "bias", "base_model_name_or_path", "task_type"});
  if (path_exists(folder / "adapter_model.safetensors"))
    put_safetensors(report, folder / "adapter_model.safetensors", list);
  return true;
}

bool put_checkpoint(Json& report, const fs::path& folder) {
  const auto state = read_object(folder / "trainer_state.json");
  if (!state) return false;
  report["checkpoint"] =
      chosen(*state, {"global_step", "max_steps", "epoch", "num_train_epochs", "best_metric", "best_model_checkpoint"});
  if (const auto log = state->find("log_history"); log != state->end() && log->is_array() && !log->empty())
    report["checkpoint"]["last_log"] = log->back();
  return true;
}

/// Adds safetensors files other than the weights: optimizer and other training state.
void put_other_files(Json& report, const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const auto name = entry.path().filename().string();
    const bool weights = name.starts_with("model") || name.starts_with("adapter_model");
    if (!weights && entry.path().extension() == ".safetensors")
      report["state_files"][name] = weights_json(facts_of(SafetensorsReader(entry.path())));
  }
}

void put_checkpoints(Json& report, const fs::path& folder) {
  std::map<std::int64_t, std::string> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const auto name = entry.path().filename().string();
    constexpr std::string_view kPrefix = "checkpoint-";
    if (!entry.is_directory() || !name.starts_with(kPrefix) || name.size() > kPrefix.size() + 15) continue;
    const auto digits = name.substr(kPrefix.size());
    if (!digits.empty() && digits.find_first_not_of("0123456789") == std::string::npos)
      found.emplace(std::stoll(digits), name);
  }
  for (const auto& [step, name] : found) report["checkpoints"].push_back(name);
}

bool holds_weights(const fs::path& folder) {
  return path_exists(folder / "model.safetensors") || path_exists(folder / "model.safetensors.index.json");
}

Json inspect_folder(const fs::path& folder, TensorList list) {
  Json report{{"path", folder.string()}, {"kind", ""}};
  put_model(report, folder);
  const bool adapter = put_adapter(report, folder, list);
  if (!adapter && holds_weights(folder)) put_safetensors(report, folder, list);
  put_tokenizer(report, folder);
  put_other_files(report, folder);
  put_checkpoints(report, folder);
  const bool state = put_checkpoint(report, folder);
  const bool content = adapter || report.contains("model") || report.contains("weights");
  if (!content && !state && !report.contains("checkpoints")) {
    refuse_weights(folder);
    fail(ErrorKind::input, {.cause = "is not a model, adapter or checkpoint: it has no config.json, "
                                     "adapter_config.json, trainer_state.json or safetensors file",
                            .place = folder.string()});
  }
  const bool checkpoint = state && folder.filename().string().starts_with("checkpoint-");
  report["kind"] = checkpoint                                ? "checkpoint"
                   : state || report.contains("checkpoints") ? "run folder"
                   : adapter                                 ? "adapter"
                                                             : "model folder";
  return report;
}

Json inspect_gguf(const fs::path& path, TensorList list) {
  const GgufFile file(path);
  Json report{{"path", path.string()}, {"kind", "GGUF file"}, {"version", file.version()}};
  if (file.find("general.architecture")) report["model"]["architecture"] = *file.find("general.architecture");
  put_weights(report, facts_of(file), list);
  for (const auto& [key, value] : file.values()) {
    if (value.is_array()) {
      report["metadata"][key] = fmt::format("{} entries", value.size());
    } else if (value.is_string() && value.get_ref<const std::string&>().size() > 200) {
      report["metadata"][key] = fmt::format("{} bytes of text", value.get_ref<const std::string&>().size());
    } else {
      report["metadata"][key] = value;
    }
  }
  return report;
}

}  // namespace

Json inspect_path(const fs::path& path, TensorList list) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return inspect_folder(path, list);
  if (path.extension() == ".gguf") return inspect_gguf(path, list);
  if (path.extension() == ".safetensors" || path.string().ends_with(".safetensors.index.json")) {
    Json report{{"path", path.string()}, {"kind", "safetensors file"}};
    put_safetensors(report, path, list);
    return report;
  }
  const bool exists = fs::exists(path, ignored);
  if (exists) refuse_weights(path);
  fail(ErrorKind::input,
       {.cause = exists ? "is neither a folder nor a .safetensors or .gguf file" : "no such file or folder",
        .place = path.string()});
}

}  // namespace qtrain
