#include "model/model_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "core/error.h"
#include "core/os/paths.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kToSafetensors =
    "save it again as safetensors with transformers: AutoModelForCausalLM.from_pretrained(...).save_pretrained(...)";

/// Kinds of weight files other than a model folder, by file extension.
struct WeightFile {
  std::string_view ending, what, remedy;
};
constexpr auto kWeightFiles = std::to_array<WeightFile>({
    {".gguf", "a GGUF file", "convert it to a model folder: qtrain import {} --output DIR"},
    {".safetensors", "a weight file without config.json", "name the folder that contains it"},
    {".bin", "weights pickled by PyTorch", kToSafetensors},
    {".pt", "weights pickled by PyTorch", kToSafetensors},
    {".pth", "weights in Meta's original format",
     "convert them to a Hugging Face folder first (transformers' convert_llama_weights_to_hf.py)"},
});

const WeightFile* weight_file(const fs::path& file) {
  const std::string name = file.filename().string();
  for (const WeightFile& known : kWeightFiles)
    if (name.ends_with(known.ending) && name != "training_args.bin") return &known;
  return nullptr;
}

/// The first weight file in a folder that is not supported, and its kind.
std::optional<std::pair<fs::path, const WeightFile*>> unread_weights(const fs::path& folder) {
  std::optional<std::pair<fs::path, const WeightFile*>> first;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (const WeightFile* known = weight_file(entry.path()); known && (!first || entry.path() < first->first))
      first = {entry.path(), known};
  return first;
}

[[noreturn]] void refuse(const fs::path& file, const WeightFile& known) {
  fail(ErrorKind::input, {.cause = fmt::format("this is {}, not a model folder", known.what),
                          .place = file.string(),
                          .remedy = known.remedy.find("{}") == std::string_view::npos
                                        ? std::string(known.remedy)
                                        : fmt::format(fmt::runtime(known.remedy), file.string())});
}

[[noreturn]] void refuse_missing(const std::string& name) {
  fail(ErrorKind::input, {.cause = "no such model folder",
                          .place = name,
                          .remedy = "name a model folder, or a model of the hub as OWNER/NAME"});
}

void require_config_file(const fs::path& folder) {
  if (path_exists(folder / "config.json")) return;
  if (path_exists(folder / "adapter_config.json"))
    fail(ErrorKind::input,
         {.cause = "this is an adapter, not a model folder",
          .place = folder.string(),
          .remedy = "name its base model here, and the adapter as adapter_name_or_path (in commands: --adapter)"});
  refuse_weights(folder);
  fail(ErrorKind::input, {.cause = "no config.json in the folder", .place = folder.string()});
}

/// The path that was named. Throws if it does not exist or is a weight file.
fs::path path_of(const std::string& name) {
  if (name.empty())
    fail(ErrorKind::usage, {.cause = "\"model_name_or_path\" is missing", .remedy = "name a model folder"});
  const fs::path path = name;
  if (!path_exists(path)) refuse_missing(name);
  if (!is_folder(path)) refuse_weights(path);
  return path;
}

/// The folder itself, or the folder that contains the file.
fs::path folder_of(const fs::path& path) {
  if (is_folder(path)) return path;
  constexpr std::array<std::string_view, 3> kEndings{".json", ".model", ".jinja"};
  const std::string ending = path.extension().string();
  if (std::find(kEndings.begin(), kEndings.end(), ending) == kEndings.end())
    fail(ErrorKind::input, {.cause = "this is a file, not a model folder",
                            .place = path.string(),
                            .remedy = "name the folder with config.json, weights and tokenizer"});
  return path.has_parent_path() ? path.parent_path() : ".";
}

bool holds_text(const fs::path& folder) {
  constexpr std::array<const char*, 4> kFiles{"tokenizer.json", "tokenizer.model", "tokenizer_config.json",
                                              "chat_template.jinja"};
  return std::any_of(kFiles.begin(), kFiles.end(), [&](const char* file) { return path_exists(folder / file); });
}

}  // namespace

void refuse_weights(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    if (const auto found = unread_weights(path)) refuse(found->first, *found->second);
  } else if (const WeightFile* known = weight_file(path)) {
    refuse(path, *known);
  }
}

fs::path model_path(const std::string& name) {
  const fs::path path = path_of(name);
  if (is_folder(path)) require_config_file(path);
  return path;
}

fs::path model_folder(const std::string& name) {
  return folder_of(model_path(name));
}

fs::path text_folder(const std::string& name) {
  const fs::path path = path_of(name);
  if (!is_folder(path)) return folder_of(path);
  const auto weights = unread_weights(path);
  if (weights && !holds_text(path)) refuse(weights->first, *weights->second);
  return path;
}

}  // namespace qtrain
