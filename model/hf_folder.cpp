#include "model/hf_folder.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/elementwise.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokenizerFiles[] = {"tokenizer.json",
                                           "tokenizer_config.json",
                                           "tokenizer.model",
                                           "special_tokens_map.json",
                                           "added_tokens.json",
                                           "vocab.json",
                                           "merges.txt",
                                           "chat_template.jinja",
                                           "generation_config.json"};

// A checkpoint saved from the bare model (without its head) has no "model." prefix.
std::string name_in(const SafetensorsReader& reader, const std::string& name) {
  if (!reader.contains(name) && name.starts_with("model.") && reader.contains(name.substr(6))) return name.substr(6);
  return name;
}

bool expected_extra(const std::string& name) {
  return name.ends_with("rotary_emb.inv_freq") || name == "lm_head.weight";
}

bool is_float(DType d) {
  return d == DType::f64 || d == DType::f32 || d == DType::f16 || d == DType::bf16;
}

void load_one(Ctx& ctx, const SafetensorsReader& reader, const Param& p) {
  const ConstTensor from = reader.at(name_in(reader, p.spec.name));
  const std::string place = fmt::format("{}: {}", reader.path().string(), p.spec.name);
  if (!(from.shape == p.spec.shape))
    fail(ErrorKind::input,
         {.cause = fmt::format("has shape {}, the config asks for {}", to_string(from.shape), to_string(p.spec.shape)),
          .place = place,
          .remedy = "config.json and the weights must belong together"});
  if (!is_float(from.dtype))
    fail(ErrorKind::input, {.cause = fmt::format("has dtype {}, which is no float", name_of(from.dtype)),
                            .place = place,
                            .remedy = "use the folder with the unquantised weights"});
  ops::copy(ctx, {.y = store(p.value), .x = from});
}

// Host copies in the dtype of the file; f32 parameters are written where they lie.
struct Converted {
  std::vector<std::vector<std::byte>> owned;
  NamedTensors tensors;

  void add(Ctx& ctx, const Param& p, DType dtype) {
    if (p.value.dtype == dtype) return tensors.push_back({p.spec.name, p.value});
    owned.emplace_back(static_cast<std::size_t>(p.value.numel()) * size_of(dtype));
    const Tensor t{owned.back().data(), dtype, p.value.shape, {}};
    ops::copy(ctx, {.y = store(t), .x = p.value});
    tensors.push_back({p.spec.name, t});
  }
};

}  // namespace

std::vector<std::string> load_parameters(Ctx& ctx, ParamStore& store, const fs::path& path) {
  const SafetensorsReader reader(path);
  std::vector<std::string> used, unused;
  for (const Param& p : store.all()) {
    load_one(ctx, reader, p);
    used.push_back(name_in(reader, p.spec.name));
  }
  std::sort(used.begin(), used.end());
  for (const auto& [name, tensor] : reader.tensors())
    if (!std::binary_search(used.begin(), used.end(), name) && !expected_extra(name)) unused.push_back(name);
  return unused;
}

void copy_tokenizer_files(const fs::path& from, const fs::path& to) {
  std::error_code same;
  if (fs::equivalent(from, to, same)) return;
  for (const char* name : kTokenizerFiles)
    if (fs::is_regular_file(from / name)) write_file(to / name, read_text(from / name));
}

void save_model(Ctx& ctx, Transformer& model, const ModelFolder& to) {
  fs::create_directories(to.folder);
  Json config = model.config().json;
  config.erase("torch_dtype");
  config["dtype"] = std::string(name_of(to.dtype));
  config["architectures"] = Json::array({model.config().architecture});
  write_file(to.folder / "config.json", dump_json(config, 2) + "\n");
  Converted converted;
  for (const Param& p : model.weights().all()) converted.add(ctx, p, to.dtype);
  write_sharded(to.folder, converted.tensors);
  copy_tokenizer_files(to.source, to.folder);
}

void save_adapter(Transformer& model, const ModelFolder& to) {
  fs::create_directories(to.folder);
  check(model.options().lora.has_value(), "save_adapter: the model has no adapter");
  write_file(to.folder / "adapter_config.json", dump_json(lora_config_json(*model.options().lora), 2) + "\n");
  NamedTensors tensors;
  for (const Param& p : model.adapter().all()) tensors.push_back({p.spec.name, p.value});
  write_safetensors(to.folder / "adapter_model.safetensors", tensors);
  copy_tokenizer_files(to.source, to.folder);
}

}  // namespace qtrain
