#pragma once
#include "core/rng.h"
#include "tests/model/support.h"

namespace qtrain::testing {

/// A kind of model: what its config.json adds to the small one, and its adapter.
struct Feature {
  std::string name;
  Json config = Json::object();
  std::optional<LoraConfig> lora = {};
};

inline LoraConfig adapter_on(std::vector<std::string> targets) {
  return {.r = 3, .alpha = 5, .targets = std::move(targets)};
}

inline TransformerOptions options_of(const Feature& f) {
  return {.config = parse_model_config(small_config(f.config), f.name),
          .activation_dtype = DType::f64,
          .base = f.lora ? Update::frozen : Update::trained,
          .lora = f.lora};
}

/// Every element standard normal times `scale`, norm weights around 1, so that no gradient is zero by accident.
inline void randomize(ParamStore& store, double scale) {
  for (const Param& p : store.all()) {
    std::uint64_t stream = 17;
    for (const char c : p.spec.name) stream = stream * 131 + static_cast<unsigned char>(c);
    const bool norm = p.spec.init.kind == Init::Kind::ones;
    dispatch_float(p.value.dtype, [&]<class T>() {
      for (std::int64_t i = 0; i < p.value.numel(); ++i) {
        const auto words = philox(7, stream, static_cast<std::uint64_t>(i));
        const double z = scale * normal_pair(words[0], words[1])[0];
        p.value.as<T>()[i] = static_cast<T>(static_cast<float>(norm ? 1 + 0.2 * z / scale : z));
      }
    });
  }
}

inline std::unique_ptr<PlannedModel> random_model(Ctx& ctx, TransformerOptions options, const Ragged& batch,
                                                  const ExecutionChoice& choice = {}) {
  auto model = planned_model(ctx, std::move(options), batch.size(), choice);
  randomize(model->weights(), 0.3);
  randomize(model->adapter(), 0.4);
  model->runner.measure_rows(ctx);
  return model;
}

}  // namespace qtrain::testing
