#include "core/formats/weight_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/os/paths.h"

namespace qtrain {
namespace {

constexpr const char* kWeightFiles[] = {"model.safetensors", "model.safetensors.index.json",
                                        "adapter_model.safetensors"};

/// Files with weights that cannot be read, by the endings of their names.
struct OtherWeights {
  std::string_view ending, what, remedy;
};
constexpr std::string_view kPickle = "such files are Python pickles, which run code when they are read";
constexpr std::string_view kConvert =
    "convert them: in Python, save_pretrained(DIR) with a current transformers writes safetensors";
constexpr OtherWeights kOtherWeights[] = {
    {".incomplete", "its download is not finished", "start the download again: it resumes where it stopped"},
    {".safetensors", "its index, model.safetensors.index.json, is missing", "fetch the other files too"},
    {".bin", kPickle, kConvert},
    {".pt", kPickle, kConvert},
    {".pth", kPickle, kConvert},
    {".gguf", "it is in a different format", "qtrain import FILE.gguf --output DIR converts it to a model folder"}};

/// Whether a file is other state that a trainer saves as pickles next to a model.
bool is_state_of_a_run(const std::string& name) {
  constexpr std::string_view kBegins[] = {"training_args", "optimizer", "scheduler", "scaler", "rng_state"};
  return std::ranges::any_of(kBegins, [&](std::string_view begin) { return name.starts_with(begin); });
}

/// Where the files of a download may be: the folder, the folder of the hub's client in it, and, for a snapshot of its
/// cache, the folder of contents.
std::vector<std::filesystem::path> download_folders(const std::filesystem::path& folder) {
  std::error_code ignored;
  const auto real = std::filesystem::weakly_canonical(folder, ignored);
  std::vector<std::filesystem::path> folders{real, real / ".cache/huggingface/download"};
  if (real.parent_path().filename() == "snapshots") folders.push_back(real.parent_path().parent_path() / "blobs");
  return folders;
}

/// The first file with other weights, in the order of the table.
std::optional<std::pair<std::filesystem::path, OtherWeights>> other_weights(const std::filesystem::path& folder) {
  const auto folders = download_folders(folder);
  for (const OtherWeights& kind : kOtherWeights)
    for (const auto& place : folders) {
      std::error_code error;
      for (std::filesystem::directory_iterator it(place, error), end; !error && it != end; it.increment(error)) {
        const std::string name = it->path().filename().string();
        const bool here = place == folders.front() || kind.ending == ".incomplete";
        if (here && name.ends_with(kind.ending) && !is_state_of_a_run(name)) return {{it->path(), kind}};
      }
    }
  return {};
}

std::optional<std::filesystem::path> readable_weights(const std::filesystem::path& folder) {
  for (const auto* name : kWeightFiles)
    if (path_exists(folder / name)) return folder / name;
  return {};
}

}  // namespace

bool is_weight_file(std::string_view name) {
  return name == "model.safetensors" || name == "model.safetensors.index.json" ||
         (name.starts_with("model-") && name.ends_with(".safetensors") && name.find("-of-") != name.npos);
}

bool has_weights(const std::filesystem::path& folder) {
  return readable_weights(folder) || other_weights(folder);
}

std::filesystem::path weights_in(const std::filesystem::path& folder) {
  if (const auto file = readable_weights(folder)) return *file;
  const std::string none = fmt::format("has no {}", fmt::join(kWeightFiles, " or "));
  if (const auto other = other_weights(folder))
    fail(ErrorKind::input,
         {.cause = fmt::format("{}, only {}: {}", none, other->first.filename().string(), other->second.what),
          .place = folder.string(),
          .remedy = std::string(other->second.remedy)});
  fail(ErrorKind::input,
       {.cause = none, .place = folder.string(), .remedy = "check the path; a download may be incomplete"});
}

}  // namespace qtrain
