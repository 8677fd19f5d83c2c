#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/log.h"
#include "core/safetensors.h"
#include "model/transformer.h"

namespace qtrain {

/// The name of a weight ("model.layers.0.mlp.up_proj.weight") in a file: a checkpoint that was saved from the bare
/// model, without its head, has no "model." in front, and an adapter's file may have the name of the adapter in it
/// (".lora_A.default.weight"). `full_name` and, for adapters, `without_adapter_name` are the way back.
std::string name_in(const SafetensorsReader& reader, const std::string& name);
std::string full_name(const SafetensorsReader& reader, const std::string& name);
std::string without_adapter_name(const std::string& name);

/// Copies every parameter of `store` from a safetensors file or folder, converting dtypes (rounding to nearest even).
/// A missing tensor, another shape or a value that is not finite is an input error naming file and tensor. Returns the
/// names in the file that no parameter asked for, without rotary buffers and the head of a tied model.
std::vector<std::string> load_parameters(Ctx& ctx, ParamStore& store, const std::filesystem::path& path);

/// The same for the state of an optimizer, in which a square may have overflowed.
void load_state(Ctx& ctx, ParamStore& store, const std::filesystem::path& path);

/// The same for the base model. Quantized linear layers are read as bitsandbytes serialized them, or quantized tensor
/// by tensor from a folder with dense weights, so that no more than one of those is in memory.
std::vector<std::string> load_base_weights(Ctx& ctx, Transformer& model, const std::filesystem::path& path);

/// The adapter of a folder or file.
std::vector<std::string> load_adapter(Ctx& ctx, Transformer& model, const std::filesystem::path& path);

/// Says that tensors of a file have no effect, where there are some.
void warn_of_ignored(Log& log, const std::filesystem::path& path, const std::vector<std::string>& names);

/// How the linear layers of a model folder are quantized, by its config.json and the first quantized tensor; nothing
/// for a folder with dense weights. Input errors name the file: other methods than bitsandbytes, values that are not
/// understood, no weights.
std::optional<Quantization> quantization_of_folder(const ModelConfig& config, const std::filesystem::path& path);

/// The model as transformers' save_pretrained writes it: config.json (the source's, with the saved dtype),
/// model*.safetensors in `dtype`, and generation_config.json copied from `source` where it has one.
/// ErrorKind::non_finite for a weight that is NaN or infinite in that type, naming the tensor.
struct ModelFolder {
  std::filesystem::path folder, source;
  DType dtype;
  Writers writers = Writers::one;  ///< others write tensors alone
};
void save_model(Ctx& ctx, Transformer& model, const ModelFolder& to);

/// adapter_config.json and adapter_model.safetensors (f32) as PEFT writes them, and `source`'s generation_config.json.
/// Errors: as save_model.
void save_adapter(Ctx& ctx, Transformer& model, const ModelFolder& to);

/// The values of every parameter under its name and in its dtype, the parts that this rank owns. Store and context must
/// outlive the sources.
std::vector<TensorSource> tensors_of(Ctx& ctx, const ParamStore& store);

/// Files of a model folder, copied unchanged beside new weights where they are there: generation_config.json; those of
/// its tokenizer; of its chat templates; all of these.
void copy_generation_config(const std::filesystem::path& from, const std::filesystem::path& to);
void copy_tokenizer_files(const std::filesystem::path& from, const std::filesystem::path& to);
void copy_chat_templates(const std::filesystem::path& from, const std::filesystem::path& to);
void copy_companions(const std::filesystem::path& from, const std::filesystem::path& to);
/// Chat templates by name ("default" is the unnamed one) as such files.
void write_chat_templates(const std::map<std::string, std::string>& sources, const std::filesystem::path& to);

}  // namespace qtrain
