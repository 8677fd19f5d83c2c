#include "convert/quantize.h"

#include <fmt/format.h>

#include <algorithm>

#include "convert/stoppable_job.h"
#include "model/dense_weight.h"
#include "model/hf_folder.h"
#include "model/lora.h"
#include "model/model_config.h"
#include "model/module_names.h"
#include "model/tied_head.h"
#include "train/checkpoint/pending_model.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

using Append = std::function<void(std::span<const std::byte>)>;

constexpr std::string_view kWeight = ".weight";

/// "model.layers.0.mlp.up_proj" for the matrix of a linear layer in a decoder block, else empty.
std::string linear_module(const SafetensorsReader& reader, const std::string& tensor) {
  if (!tensor.ends_with(kWeight)) return {};
  const std::string name = full_name(reader, tensor), module = name.substr(0, name.size() - kWeight.size());
  return is_linear_layer(module) ? module : std::string();
}

TensorSource copied(const SafetensorsReader& reader, const std::string& name, ConstTensor tensor) {
  return {
      .name = name, .dtype = tensor.dtype, .shape = tensor.shape, .produce = [&reader, tensor](const Append& append) {
        append({tensor.data, tensor.bytes()});
        reader.release(tensor);
      }};
}

/// A small tensor that stays in memory until it is written.
template <class T>
TensorSource kept(const std::string& name, std::vector<T> values) {
  const auto size = static_cast<std::int64_t>(values.size());
  return {.name = name,
          .dtype = dtype_of<T>,
          .shape = {size},
          .produce = [values = std::move(values)](const Append& append) { append(std::as_bytes(std::span(values))); }};
}

/// Builds the tensors of a folder of 4-bit matrices from those of the model.
class Conversion {
 public:
  Conversion(Ctx& ctx, const SafetensorsReader& reader, const ModelConfig& model, const QuantizeOptions& options)
      : ctx_(ctx), reader_(reader), model_(model), options_(options) {}

  void quantize(const std::string& name, ConstTensor matrix) {
    Quantized4 q = quantized(name);
    ++report_.matrices;
    report_.parameters += matrix.numel();
    const std::string json = quant_state_json(q.state);
    // The codes are recomputed when they are written, because keeping all of them would take too much memory.
    add(matrix, {.name = name,
                 .dtype = DType::u8,
                 .shape = {static_cast<std::int64_t>(q.codes.size()), 1},
                 .produce = [this, name](const Append& append) {
                   const Quantized4 again = quantized(name);
                   append(std::as_bytes(std::span(again.codes)));
                 }});
    if (q.state.nested) {
      add(kept(name + ".absmax", std::move(q.absmax_codes)));
      add(kept(name + ".nested_absmax", std::move(q.nested_absmax)));
      add(kept(name + ".nested_quant_map", std::move(q.nested_map)));
    } else {
      add(kept(name + ".absmax", std::move(q.absmax)));
    }
    const auto& map = map_of(q.state.type);
    add(kept(name + ".quant_map", std::vector<float>(map.begin(), map.end())));
    const std::string type = q.state.type == FourBit::nf4 ? "nf4" : "fp4";
    add(kept(name + ".quant_state.bitsandbytes__" + type, std::vector<std::uint8_t>(json.begin(), json.end())));
  }
  void copy(const std::string& name, ConstTensor tensor) {
    if (tensor.dtype == DType::f8_e4m3)
      add(tensor, expanded(name, tensor.shape));
    else if (!model_.fp8 || !is_fp8_part(name))
      add(tensor, copied(reader_, name, tensor));
  }

  std::vector<TensorSource> take_tensors() { return std::move(tensors_); }
  const QuantizeReport& report() const { return report_; }

 private:
  /// A matrix in FP8 that is not quantized to 4 bits.
  TensorSource expanded(const std::string& name, Shape shape) {
    return {
        .name = name, .dtype = expanded_dtype(model_), .shape = shape, .produce = [this, name](const Append& append) {
          const DenseWeight dense(ctx_, reader_, name, &model_);
          append({dense.values().data, dense.values().bytes()});
          dense.release();
        }};
  }
  Quantized4 quantized(const std::string& name) {
    const DenseWeight dense(ctx_, reader_, name, &model_);
    Quantized4 q =
        quantize_matrix(ctx_, dense.values(), options_.matrices, fmt::format("{}: {}", reader_.path().string(), name));
    dense.release();
    return q;
  }
  void add(ConstTensor from, TensorSource source) {
    report_.bytes_before += from.bytes();
    add(std::move(source));
  }
  void add(TensorSource source) {
    report_.bytes_after += static_cast<std::uint64_t>(source.shape.numel()) * size_of(source.dtype);
    tensors_.push_back(std::move(source));
  }

  Ctx& ctx_;
  const SafetensorsReader& reader_;
  const ModelConfig& model_;
  const QuantizeOptions& options_;
  std::vector<TensorSource> tensors_;
  QuantizeReport report_;
};

BnbConfig bnb_config_of(const QuantizeOptions& options, const ModelConfig& model) {
  for (const std::string& name : options.skip_modules)
    if (!is_module_name(name))
      fail(ErrorKind::usage, {.cause = fmt::format("--skip_modules: \"{}\" is not a module name", name),
                              .remedy = "give names or prefixes, such as mlp.up_proj or model.layers.0"});
  BnbConfig bnb{.bits = BnbConfig::Bits::four,
                .quant_type = options.matrices.type,
                .double_quant = options.matrices.nested,
                .compute_dtype = options.compute_dtype.value_or(model.dtype),
                .skip_modules = options.skip_modules};
  // If layers are given, transformers drops its own default, which is the head.
  auto& skip = bnb.skip_modules;
  if (!skip.empty() && std::find(skip.begin(), skip.end(), kHeadName) == skip.end())
    skip.emplace(skip.begin(), kHeadName);
  return bnb;
}

/// Inserts the key at its sorted place.
Json with_quantization(const Json& config, const BnbConfig& bnb) {
  constexpr const char* kKey = "quantization_config";
  Json out = Json::object();
  for (const auto& [key, value] : config.items()) {
    if (key > kKey && !out.contains(kKey)) out[kKey] = bnb_config_json(bnb);
    out[key] = value;
  }
  if (!out.contains(kKey)) out[kKey] = bnb_config_json(bnb);
  return out;
}

std::int64_t bytes_in(const SafetensorsReader& reader) {
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : reader.tensors()) bytes += static_cast<std::int64_t>(tensor.bytes());
  return bytes;
}

void check_folders(const QuantizeOptions& options, const ModelConfig& model) {
  std::error_code same;
  if (fs::equivalent(options.model, options.output, same))
    fail(ErrorKind::usage, {.cause = "the output is the model's own folder",
                            .place = options.output.string(),
                            .remedy = "choose another folder, or the unquantized weights would be lost"});
  if (bnb_config(model.json, options.model.string()))
    fail(ErrorKind::input, {.cause = "the weights are already quantized",
                            .place = options.model.string(),
                            .remedy = "give the 32- or 16-bit model that they were made from with --model"});
}

}  // namespace

QuantizeReport quantize_folder(Ctx& ctx, const QuantizeOptions& options) {
  ModelConfig model = load_model_config(options.model);
  check_folders(options, model);
  if (untie_by_weights(model, options.model) && options.log) warn_of_untied(*options.log, options.model);
  const SafetensorsReader reader(options.model);
  const BnbConfig bnb = bnb_config_of(options, model);
  Conversion conversion(ctx, reader, model, options);
  std::optional<StoppableJob> job(std::in_place, options.log, ProgressBar::Job{"quantizing", bytes_in(reader), false});
  for (const auto& [name, tensor] : reader.tensors()) {
    job->advance(static_cast<std::int64_t>(tensor.bytes()));
    const std::string module = linear_module(reader, name);
    if (module.empty() || bnb.skips(module) || tensor.shape.rank != 2)
      conversion.copy(name, tensor);
    else
      conversion.quantize(name, tensor);
  }
  if (conversion.report().matrices == 0)
    fail(ErrorKind::usage, {.cause = "no linear layer is left to quantize",
                            .place = options.model.string(),
                            .remedy = "give fewer layers in --skip_modules"});
  PendingModel output(options.output, "qtrain quantize");
  job.reset();
  job.emplace(options.log,
              ProgressBar::Job{"writing", static_cast<std::int64_t>(conversion.report().bytes_after), false});
  write_sharded(output.folder(), watched(conversion.take_tensors(), *job));
  copy_companions(options.model, output.folder());
  write_file(output.folder() / "config.json", dump_json(with_quantization(model.json, bnb), 2) + "\n");
  output.commit();
  return conversion.report();
}

}  // namespace qtrain
