// The names that tables of layers give their parameters in GGUF files, against gguf-py (make_gguf_names.py).
#include <gtest/gtest.h>

#include <map>

#include "core/formats/json.h"
#include "core/os/file.h"
#include "model/families/family.h"
#include "tests/model/support.h"

namespace qtrain::testing {
namespace {

/// Names in folders, without the layer prefix, and in GGUF files; experts share one name.
std::map<std::string, std::string> names_of(const Layer& layer) {
  std::map<std::string, std::string> names;
  for (const VectorSpec& v : layer.vectors) names[v.name] = v.gguf;
  for (const LinearSpec& l : layer.linears) {
    names[l.module + ".weight"] = l.gguf + ".weight";
    if (l.bias == Bias::yes) names[l.module + ".bias"] = l.gguf + ".bias";
  }
  for (const ExpertsSpec& e : layer.experts) names[e.module + "." + e.part + ".weight"] = e.gguf + ".weight";
  return names;
}

TEST(GgufNames, AreThoseOfGgufPy) {
  const Json known = read_json(QTRAIN_SOURCE_DIR "/tests/model/goldens/gguf_names.json");
  EXPECT_EQ(known.size(), 14u);
  for (const auto& [model_type, expected] : known.items()) {
    Json config{{"model_type", model_type}};
    if (model_type == "llama") config.update({{"attention_bias", true}, {"mlp_bias", true}});
    const ModelConfig model = parse_model_config(small_config(config), "small");
    EXPECT_FALSE(model.family->gguf.architecture.empty()) << model_type;
    EXPECT_EQ(names_of(make_layers(model).back()), (expected.get<std::map<std::string, std::string>>())) << model_type;
  }
}

}  // namespace
}  // namespace qtrain::testing
