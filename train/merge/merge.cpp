#include "train/merge/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>

#include "core/json.h"
#include "kernels/elementwise.h"
#include "model/hf_folder.h"
#include "train/merge/adapter_deltas.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

using Append = std::function<void(std::span<const std::byte>)>;

struct WeightedDeltas {
  AdapterDeltas deltas;
  double weight;
};

void check_folders(const MergeOptions& options) {
  if (!fs::exists(options.model / "config.json"))
    fail(ErrorKind::input, {.cause = "no config.json in the folder", .place = options.model.string()});
  std::error_code same;
  if (fs::equivalent(options.model, options.output, same))
    fail(ErrorKind::usage, {.cause = "the output is the model's own folder",
                            .place = options.output.string(),
                            .remedy = "name another folder: the unmerged weights would be lost"});
  if (!read_json(options.model / "config.json").value("quantization_config", Json()).is_null())
    fail(ErrorKind::input,
         {.cause = "the weights are quantised: a merge into them would be rounded to their few values",
          .place = options.model.string(),
          .remedy = "name the 32- or 16-bit model that they were made from with --model"});
}

// "model.layers.0.mlp.up_proj" for its weight's name in the file; a file of the bare model has no "model." prefix.
std::string module_of(const SafetensorsReader& source, const std::string& tensor) {
  constexpr std::string_view kWeight = ".weight";
  if (!tensor.ends_with(kWeight)) return {};
  const std::string module = tensor.substr(0, tensor.size() - kWeight.size());
  const bool bare = !source.contains("model.embed_tokens.weight");
  return bare ? "model." + module : module;
}

void require_fit(const SafetensorsReader& source, const std::deque<WeightedDeltas>& adapters) {
  if (!source.unusable().empty()) (void)source.at(source.unusable().begin()->first);  // says why
  std::map<std::string, Shape> weights;
  for (const auto& [name, tensor] : source.tensors()) weights[module_of(source, name)] = tensor.shape;
  for (const auto& [deltas, weight] : adapters)
    for (const std::string& module : deltas.modules()) {
      if (!weights.contains(module))
        fail(ErrorKind::input, {.cause = fmt::format("the adapter changes {}, which the model does not have", module),
                                .place = deltas.folder().string(),
                                .remedy = "adapter and model must belong together"});
      deltas.require_fit(module, weights.at(module));
    }
}

// W with every delta, rounded to its own type.
void append_merged(Ctx& ctx, ConstTensor w, const std::function<void(Tensor)>& add_deltas, const Append& append) {
  std::vector<float> sum(static_cast<std::size_t>(w.numel()));
  const Tensor in_f32 = view_of(std::span(sum), w.shape);
  ops::run_cpu(ctx, ops::Copy{.y = store(in_f32), .x = w});
  add_deltas(in_f32);
  if (w.dtype == DType::f32) return append({in_f32.data, in_f32.bytes()});
  std::vector<std::byte> memory(w.bytes());
  const Tensor rounded{memory.data(), w.dtype, w.shape, {}};
  ops::run_cpu(ctx, ops::Copy{.y = store(rounded), .x = in_f32});
  append(memory);
}

TensorSource merged_source(Ctx& ctx, const SafetensorsReader& source, const std::string& name,
                           const std::deque<WeightedDeltas>& adapters) {
  const ConstTensor w = source.at(name);
  const std::string module = module_of(source, name);
  const bool changed =
      std::any_of(adapters.begin(), adapters.end(), [&](const WeightedDeltas& a) { return a.deltas.changes(module); });
  TensorSource out{.name = name, .dtype = w.dtype, .shape = w.shape};
  if (!changed) {
    out.produce = [&source, w](const Append& append) {
      append({w.data, w.bytes()});
      source.release(w);
    };
    return out;
  }
  out.produce = [&ctx, &source, &adapters, w, module](const Append& append) {
    const auto add_deltas = [&](Tensor sum) {
      for (const WeightedDeltas& a : adapters) a.deltas.add_to(ctx, module, sum, a.weight);
    };
    append_merged(ctx, w, add_deltas, append);
    source.release(w);
  };
  return out;
}

}  // namespace

void merge_adapters(Ctx& ctx, const MergeOptions& options) {
  check_folders(options);
  std::deque<WeightedDeltas> adapters;
  for (const MergedAdapter& a : options.adapters) adapters.push_back({AdapterDeltas(a.folder), a.weight});
  const SafetensorsReader source(options.model);
  require_fit(source, adapters);
  std::vector<TensorSource> tensors;
  for (const auto& [name, tensor] : source.tensors()) tensors.push_back(merged_source(ctx, source, name, adapters));
  fs::create_directories(options.output);
  write_sharded(options.output, tensors);
  write_file(options.output / "config.json", read_text(options.model / "config.json"));
  copy_tokenizer_files(options.model, options.output);
}

}  // namespace qtrain
