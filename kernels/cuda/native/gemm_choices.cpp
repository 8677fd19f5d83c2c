#include <cstdlib>
#include <cstring>

#include "core/file.h"
#include "kernels/cuda/native/gemm_plan.h"

namespace qtrain::cuda {
namespace {

namespace fs = std::filesystem;

fs::path cache_folder() {
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  if (cache && *cache) return fs::path(cache) / "qtrain";
  return home && *home ? fs::path(home) / ".cache" / "qtrain" : fs::path{};
}

constexpr int kVersion = 2;  ///< of what an algorithm is chosen by

}  // namespace

ProductChoices::ProductChoices(const std::string& gpu, std::size_t library_version) {
  const fs::path folder = cache_folder();
  std::error_code problem;
  if (folder.empty() || (fs::create_directories(folder, problem), problem)) return;
  std::string name =
      "gemm " + std::to_string(kVersion) + " " + gpu + " cublaslt " + std::to_string(library_version) + ".json";
  for (char& c : name)
    if (c == ' ' || c == '/') c = '_';
  file_ = folder / name;
  if (!fs::is_regular_file(file_, problem)) return;
  try {
    choices_ = read_json(file_);
  } catch (const Error&) {  // half a file of a full disk: written anew
  }
  if (!choices_.is_object()) choices_ = Json::object();
}

std::optional<cublasLtMatmulAlgo_t> ProductChoices::find(const ProductKey& key) const {
  const auto at = choices_.find(to_string(key));
  cublasLtMatmulAlgo_t algorithm;
  if (at == choices_.end() || !at->is_array() || at->size() != std::size(algorithm.data)) return {};
  for (std::size_t i = 0; i < std::size(algorithm.data); ++i) {
    if (!(*at)[i].is_number_unsigned()) return {};
    algorithm.data[i] = (*at)[i].get<std::uint64_t>();
  }
  return algorithm;
}

void ProductChoices::remember(const ProductKey& key, const cublasLtMatmulAlgo_t& algorithm) {
  choices_[to_string(key)] = Json(std::vector<std::uint64_t>(std::begin(algorithm.data), std::end(algorithm.data)));
  if (file_.empty()) return;
  try {
    write_file(file_, dump_json(choices_, 1) + "\n");
  } catch (const Error&) {  // read-only or full: this run goes on with its own choices
    file_.clear();
  }
}

}  // namespace qtrain::cuda
