#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/formats/safetensors.h"
#include "core/log.h"
#include "model/adapter_init/base_change.h"
#include "model/runner.h"

namespace qtrain {

/// The name of a weight ("model.layers.0.mlp.up_proj.weight") in a file: checkpoints saved from the bare model, without
/// its head, lack the prefix "model.", and an adapter file may contain the adapter's name (".lora_A.default.weight").
/// full_name and, for adapters, without_adapter_name are the inverse.
std::string name_in(const SafetensorsReader& reader, const std::string& name);
std::string full_name(const SafetensorsReader& reader, const std::string& name);
std::string without_adapter_name(const std::string& name);

/// Copies every parameter of `store` from a safetensors file or folder, converting dtypes (rounding to nearest even).
/// Throws an input error naming file and tensor for a missing tensor, a wrong shape or a value that is not finite.
/// Returns the unused names in the file, except rotary buffers and the head of a tied model.
std::vector<std::string> load_parameters(Ctx& ctx, ParamStore& store, const std::filesystem::path& path);

/// Likewise for optimizer state, whose values need not be finite: a square may have overflowed.
void load_state(Ctx& ctx, ParamStore& store, const std::filesystem::path& path);

/// Likewise for the base model. Quantized linear layers are read as bitsandbytes serialized them, or quantized one by
/// one from a folder of dense weights, so that at most one dense matrix is in memory. `change`: what a new adapter
/// starts from and changes, if there is one.
std::vector<std::string> load_base_weights(Ctx& ctx, Runner& runner, const std::filesystem::path& path,
                                           BaseChange* change = nullptr);

/// Loads the adapter of a folder or file (load_adapter_file).
std::vector<std::string> load_adapter(Ctx& ctx, Runner& runner, const std::filesystem::path& path);

/// Warns about tensors of a file that have no effect, if there are any.
void warn_of_ignored(Log& log, const std::filesystem::path& path, const std::vector<std::string>& names);

/// How the linear layers of a model folder are quantized, from its config.json and the first quantized tensor; nothing
/// for dense weights. Throws input errors that name the file for methods other than bitsandbytes, unsupported values
/// and missing weights.
std::optional<Quantization> quantization_of_folder(const ModelConfig& config, const std::filesystem::path& path);
/// How a folder in FP8 stores its weights. Throws an input error if it has none.
Fp8Storage fp8_of_folder(const ModelConfig& config, const std::filesystem::path& path);

/// Writes the model as transformers' save_pretrained does: config.json (the source's, with the saved dtype),
/// model*.safetensors in `dtype`, and generation_config.json copied from `source` if it has one. Throws
/// ErrorKind::non_finite, naming the tensor, for a weight that is NaN or infinite in that type.
struct ModelFolder {
  std::filesystem::path folder, source;
  DType dtype;
  Writers writers = Writers::one;  ///< other ranks write tensors only
};
void save_model(Ctx& ctx, Transformer& model, const ModelFolder& to);

/// Writes adapter_config.json and adapter_model.safetensors (f32) as PEFT does, and copies `source`'s
/// generation_config.json. Throws as save_model does.
void save_adapter(Ctx& ctx, Transformer& model, const ModelFolder& to);

/// Every parameter's name, dtype and values, limited to the parts that this rank owns. Store and context must outlive
/// the returned sources.
std::vector<TensorSource> tensors_of(Ctx& ctx, const ParamStore& store);

/// Copy files of a model folder unchanged, if they exist: generation_config.json; the tokenizer's files; the chat
/// templates; all of these.
void copy_generation_config(const std::filesystem::path& from, const std::filesystem::path& to);
void copy_tokenizer_files(const std::filesystem::path& from, const std::filesystem::path& to);
void copy_chat_templates(const std::filesystem::path& from, const std::filesystem::path& to);
void copy_companions(const std::filesystem::path& from, const std::filesystem::path& to);
/// Writes chat templates by name ("default" is the unnamed one) to such files.
void write_chat_templates(const std::map<std::string, std::string>& sources, const std::filesystem::path& to);

}  // namespace qtrain
