#include "convert/gguf/export_adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include "convert/adapter_deltas.h"
#include "convert/gguf/export_metadata.h"
#include "convert/gguf/layout.h"
#include "convert/stoppable_job.h"
#include "core/formats/gguf_write.h"
#include "model/families/family.h"
#include "model/hf_folder.h"
#include "model/module_names.h"
#include "model/tied_head.h"
#include "quant/gguf_quantize.h"
#include "train/checkpoint/foreign_results.h"

namespace qtrain {
namespace {

/// A matrix of the adapter in f32, with rows in the order of the file.
struct Rows {
  std::int64_t height, width;
  std::vector<float> values;

  Rows(std::int64_t h, std::int64_t w) : height(h), width(w), values(static_cast<std::size_t>(h * w)) {}
  float& at(std::int64_t row, std::int64_t column) { return values[static_cast<std::size_t>(row * width + column)]; }
};

float value_of(ConstTensor t, std::int64_t i) {
  switch (t.dtype) {
    case DType::bf16: return static_cast<float>(t.as<Bf16>()[i]);
    case DType::f16: return static_cast<float>(t.as<F16>()[i]);
    case DType::f64: return static_cast<float>(t.as<double>()[i]);
    default: return t.as<float>()[i];
  }
}

Rows rows_in_order(ConstTensor t, const RotaryRows& order, double factor) {
  Rows rows(t.shape[0], t.shape[1]);
  for (std::int64_t r = 0; r < rows.height; ++r)
    for (std::int64_t c = 0; c < rows.width; ++c)
      rows.at(r, c) = static_cast<float>(factor * value_of(t, order.in_hf(r) * rows.width + c));
  return rows;
}

Rows transposed(ConstTensor t) {
  Rows rows(t.shape[1], t.shape[0]);
  for (std::int64_t r = 0; r < rows.height; ++r)
    for (std::int64_t c = 0; c < rows.width; ++c) rows.at(r, c) = value_of(t, c * rows.height + r);
  return rows;
}

/// Name and shape of a tensor to write, and a function that makes its rows.
struct RowSource {
  std::string name;
  std::vector<std::int64_t> shape;
  std::function<Rows()> rows;
};

GgufTensorSource adapter_source(RowSource from, GgufType type) {
  GgufTensorSource source{.name = std::move(from.name), .type = type, .shape = std::move(from.shape)};
  source.produce = [type, make = std::move(from.rows)](const auto& append) {
    const Rows rows = make();
    std::vector<std::byte> bytes(rows.values.size() * gguf_block(type)->bytes);
    quantize_gguf(type, rows.values, bytes);
    append(bytes);
  };
  return source;
}

class AdapterFile {
 public:
  explicit AdapterFile(const GgufAdapterOptions& options)
      : options_(options),
        config_(load_model_config(options.model)),
        deltas_(options.adapter, config_.experts ? config_.experts->names : ExpertNames{}) {
    if (untie_by_weights(config_, options.model) && options.log) warn_of_untied(*options.log, options.model);
    require_expressible(config_, (options.model / "config.json").string());
    require_expert_parameters(deltas_.config(), config_, options.adapter);
    require_factors();
    leave_out_unknown();
  }

  const std::vector<std::string>& ignored() const { return deltas_.ignored(); }

  GgufMetadata metadata() const {
    GgufMetadata m;
    m.put_text("general.architecture", config_.family->gguf.architecture);
    m.put_text("general.type", "adapter");
    m.put_text(kGgufWrittenBy, "qtrain export");
    m.put_integer("general.file_type", gguf_file_type(options_.type));
    m.put_text("adapter.type", "lora");
    m.put_number("adapter.lora.alpha", static_cast<float>(alpha()));
    return m;
  }

  /// The tensors to write. They read from this object, which must outlive them.
  std::vector<GgufTensorSource> tensors() const {
    std::vector<GgufTensorSource> sources;
    std::set<std::string> left;
    for (const auto& [name, factors] : deltas_.factors()) left.insert(name);
    for (const GgufWeight& w : gguf_layout(config_)) {
      if (w.names.size() > 1 && std::ranges::any_of(w.names, [&](auto& name) { return left.contains(name); }))
        refuse("the experts of " + w.gguf, "have separate adapters, which GGUF cannot express", "remove them");
      if (left.erase(w.name()) == 1)
        add(sources, w);
      else if (w.names.size() == 1 && deltas_.targets(w.name()))
        refuse(w.name(), "is named by adapter_config.json, but the adapter has no tensors for it",
               "save or copy the adapter again");
    }
    return sources;
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const char* why, const char* remedy) const {
    fail(ErrorKind::input,
         {.cause = fmt::format("{} {}", what, why), .place = options_.adapter.string(), .remedy = remedy});
  }
  void require_factors() const {
    constexpr const char *kWhy = "cannot be expressed in a GGUF adapter",
                         *kRemedy = "export the merged model with --merge";
    if (deltas_.config().dora) refuse("use_dora", kWhy, kRemedy);
    if (!deltas_.config().target_parameters.empty()) refuse("target_parameters", kWhy, kRemedy);
    if (!deltas_.whole().empty()) refuse(deltas_.whole().begin()->first, kWhy, kRemedy);
    for (const auto& [name, factors] : deltas_.factors())
      if (config_.tie_word_embeddings && (factors.embedding || name == kHeadWeight))
        refuse(name + " of a model whose head is its embedding", kWhy, kRemedy);
  }

  // Leaves out factors of layers that the model does not have.
  void leave_out_unknown() {
    std::set<std::string> unknown;
    for (const auto& [name, factors] : deltas_.factors()) unknown.insert(name);
    for (const GgufWeight& w : gguf_layout(config_))
      for (const std::string& name : w.names) unknown.erase(name);
    for (const std::string& name : unknown) deltas_.leave_out(name);
    require_effect(deltas_);
  }

  // Readers treat alpha 0 as a scale of 1.
  double alpha() const { return deltas_.config().alpha != 0 ? deltas_.config().alpha : 1; }

  void add(std::vector<GgufTensorSource>& sources, const GgufWeight& w) const {
    const AdapterFactors& f = deltas_.factors().at(w.name());
    const Shape& shape = deltas_.shapes().at(w.name());
    if (w.shape_of_one() != std::vector<std::int64_t>{shape[0], shape[1]})
      refuse(w.name(), "has another shape in the model", "use an adapter that was trained on this model");
    const std::int64_t rank = f.a.shape[0];
    const std::string module = w.name().substr(0, w.name().rfind('.'));
    const double factor = deltas_.config().scale_of(module) * static_cast<double>(rank) / alpha();
    const RotaryRows order = rows_of(w);
    const std::vector<std::int64_t> a{f.a.shape[0], f.a.shape[1]}, b{f.b.shape[0], f.b.shape[1]};
    const auto a_rows = [&f] { return f.embedding ? transposed(f.a) : rows_in_order(f.a, {}, 1); };
    const auto b_rows = [&f, order, factor] { return rows_in_order(f.b, order, factor); };
    const std::vector<std::int64_t> turned{a[1], a[0]};
    sources.push_back(adapter_source({w.gguf + ".lora_a", f.embedding ? turned : a, a_rows}, options_.type));
    sources.push_back(adapter_source({w.gguf + ".lora_b", b, b_rows}, options_.type));
  }

  const GgufAdapterOptions& options_;
  ModelConfig config_;
  AdapterDeltas deltas_;
};

}  // namespace

GgufExportReport export_gguf_adapter(const GgufAdapterOptions& options) {
  if (gguf_block(options.type)->values > 1)
    fail(ErrorKind::usage, {.cause = fmt::format("adapters cannot be exported as {}", name_of(options.type)),
                            .remedy = "choose --type f32, f16 or bf16"});
  const AdapterFile file(options);
  if (options.log) warn_of_ignored(*options.log, options.adapter, file.ignored());
  std::vector<GgufTensorSource> tensors = file.tensors();
  GgufExportReport report;
  for (const auto& t : tensors) ++report.tensors[t.type];
  StoppableJob job(options.log, {.unit = "exporting", .total = bytes_of(tensors), .counted = false});
  report.file = write_gguf({options.output, options.name_now}, file.metadata(), watched(std::move(tensors), job));
  return report;
}

}  // namespace qtrain
