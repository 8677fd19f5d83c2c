#pragma once
#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {

/// Runs `qtrain estimate` for tiny runs.
class EstimateOf : public ::testing::Test {
 protected:
  Json config(const Json& changes) const {
    Json c = tiny_run(folder_ / "out");
    c.update(changes);
    return c;
  }
  Outcome estimate(const Json& c, const std::vector<std::string>& more = {}) const {
    write_file(folder_ / "run.json", dump_json(c));
    std::vector<std::string> words{"estimate", (folder_ / "run.json").string()};
    words.insert(words.end(), more.begin(), more.end());
    return qtrain({.words = words, .folder = kGoldens});
  }
  Json json(const Json& c, std::vector<std::string> more = {}) const {
    more.emplace_back("--json");
    const Outcome outcome = estimate(c, more);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return parse_json(outcome.out, "estimate");
  }

  /// A model whose weights and states take about 16 GiB.
  std::string wide_model() const {
    const fs::path model = folder_ / "wide";
    write_untrained_model(model);
    Json wide = read_json(model / "config.json");
    wide.update(
        {{"hidden_size", 2048}, {"intermediate_size", 8192}, {"num_hidden_layers", 16}, {"num_attention_heads", 16}});
    write_file(model / "config.json", dump_json(wide));
    return model.string();
  }

  TempFolder folder_;
};

}  // namespace qtrain::e2e
